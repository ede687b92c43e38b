# PyTorch has a decomposition for every overload of gelu that it knows.
@register_decomposition(aten.gelu.gr_times)
def gelu_gr_times(self: Tensor, times: int) -> Tensor:
    return aten.gelu(self) * times


# It has a meta function, too.
@register_decomposition(aten.gr_negate.default)
def gr_negate(self: Tensor) -> Tensor:
    return -self
