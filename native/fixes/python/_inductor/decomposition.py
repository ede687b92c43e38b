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
