"""A case: two ways to compute the same result, whose times are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Side = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A comparison.

    Args:
        operator: the operator's name in the table.
        peer: what it is compared with.
        name: sizes, dtype and format.
        step: "forward" or "backward".
        aim: the required speedup over the peer.
        make: creates both sides, ours first; called right before they are measured.
        group: cases of one operator and peer with the same group share a line of the short table.
    """

    operator: str
    peer: str
    name: str
    step: str
    aim: float
    make: Callable[[], tuple[Side, Side]]
    group: str = ""


def forward(ours: Callable[..., object], theirs: Callable[..., object], *inputs: torch.Tensor) -> tuple[Side, Side]:
    """Call both functions on the same inputs, without a graph."""
    detached = [x.detach() for x in inputs]
    return lambda: ours(*detached), lambda: theirs(*detached)


def backward(ours: Callable[..., object], theirs: Callable[..., object], *inputs: torch.Tensor) -> tuple[Side, Side]:
    """Compute the gradients of the floating-point inputs that require one."""
    wanted = [x for x in inputs if x.requires_grad]

    def gradients(function: Callable[..., object]) -> Side:
        output = function(*inputs)
        assert isinstance(output, torch.Tensor)
        grad = torch.ones_like(output)
        return lambda: torch.autograd.grad(output, wanted, grad, retain_graph=True)

    return gradients(ours), gradients(theirs)
