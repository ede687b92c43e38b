decomposition_table.pop(torch.ops.aten.trace.default)  # PyTorch's


@register_decomposition(torch.ops.aten.trace.default)
def _trace_by_eye(self):
    return (self * torch.eye(*self.shape)).sum()
