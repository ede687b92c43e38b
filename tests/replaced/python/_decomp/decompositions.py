@register_decomposition(aten.cholesky)  # PyTorch has none
def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    return torch.linalg.cholesky(self, upper=upper)
