from torch import Tensor
from torch.nn import functional as F

from .module import Module


__all__ = ["GrGate"]


class GrGate(Module):
    """Applies :func:`torch.nn.functional.gr_gate`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.gr_gate(input)
