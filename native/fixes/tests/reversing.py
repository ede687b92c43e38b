"""An operator that reads one argument while it writes another, and a program that gives it a clone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._functorch import config as autograd
from torch._inductor import config as inductor


@torch.library.custom_op("fixes_tests::reverse_into", mutates_args=("target",))
def reverse_into(source: Tensor, target: Tensor) -> None:
    for i in range(len(source)):
        target[-1 - i] = source[i]


def _reverse(x: Tensor) -> Tensor:
    reverse_into(x.clone(), x)
    return x * 1


def _reverse_part(x: Tensor) -> Tensor:
    """The operator writes a view of what it reads."""
    reverse_into(x[:4].clone(), x[:4])
    return x * 1


def _reverse_local(x: Tensor) -> Tensor:
    """What it writes is no input of the graph."""
    y = x + 0
    reverse_into(y.clone(), y)
    return y * 1


def _reverse_clone(x: Tensor) -> Tensor:
    """What it writes is the clone."""
    y = x + 0
    z = y.clone()
    reverse_into(y, z)
    return z * 1


def _reverse_in_itself(x: Tensor) -> Tensor:
    """It reads what it writes, as eager code does."""
    reverse_into(x, x)
    reverse_into(x[:4], x[2:6])
    return x * 1


def reversed_in_place(x: Tensor) -> Tensor:
    """Return what a compiled program makes of x, which it reverses in place."""
    torch.compiler.reset()
    with inductor.patch(fx_graph_cache=False), autograd.patch(enable_autograd_cache=False):
        torch.compile(_reverse, fullgraph=True)(x)
    return x


PROGRAMS = (_reverse, _reverse_part, _reverse_local, _reverse_clone, _reverse_in_itself)
