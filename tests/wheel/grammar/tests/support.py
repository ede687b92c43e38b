"""Helpers for the tests of the grammar."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

aten = torch.ops.aten
NONE = -99  # what the kernels write for an argument that is None


def real(*size: int) -> Tensor:
    """Return a random tensor with gradient."""
    return torch.randn(*size, dtype=torch.double, requires_grad=True)


def complex_(*size: int) -> Tensor:
    """Return a random complex tensor with gradient."""
    return torch.randn(*size, dtype=torch.cdouble, requires_grad=True)


def check_gradients(function: Callable[..., Any], *inputs: Any, second: bool = True, forward: bool = True) -> None:
    """Compare the formulas with finite differences: backward, forward and double backward."""
    assert gradcheck(function, inputs, check_forward_ad=forward, check_undefined_grad=True)
    if second:
        assert gradgradcheck(function, inputs)
