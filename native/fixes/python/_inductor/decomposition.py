# pytorch#196596: with `beta=0` addmm ignores its first argument, also where it is nan, and with `alpha=0` the product,
# but for bfloat16. The decomposition multiplied by zero. In these cases addmm itself is called, as PyTorch does on CUDA
# for `beta=0`.
_addmm_of_pytorch = addmm


def _addmm(self, mat1, mat2, out_dtype=None, beta=1, alpha=1):
    if beta == 0 or alpha == 0:
        return NotImplemented
    return _addmm_of_pytorch(self, mat1, mat2, out_dtype, beta, alpha)


for _overload in [overload for overload, rule in decompositions.items() if rule is addmm]:
    decompositions[_overload] = _addmm


# pytorch#185770, #187293, #160876 in compiled code; see cpu/ActivationKernels.cpp.
_gelu_of_pytorch, _silu_of_pytorch = decompositions[aten.gelu.default], decompositions[aten.silu.default]


def _gelu(self, approximate="none"):
    return torch.where(self > 100, self, _gelu_of_pytorch(self.clamp(-100, 100), approximate))


def _silu(self):
    return _silu_of_pytorch(self if self.is_complex() else self.clamp_min(-1000))


decompositions[aten.gelu.default], decompositions[aten.silu.default] = _gelu, _silu
