from torch._prims_common.wrappers import elementwise_type_promotion_wrapper


@register_decomposition(aten.twice_plus)
@out_wrapper()
@elementwise_type_promotion_wrapper(
    type_promoting_args=("self", "other"),
    type_promotion_kind=utils.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
)
def twice_plus(self: Tensor, other: Tensor) -> Tensor:
    torch._check(
        self.dtype != torch.bool or other.dtype != torch.bool,
        lambda: "twice_plus(): expected self or other to be a number type, but both are bool",
    )
    return 2 * self + other


@register_decomposition(aten.mul_constant)
@out_wrapper()
def mul_constant(self: Tensor, constant: float) -> Tensor:
    return self * constant
