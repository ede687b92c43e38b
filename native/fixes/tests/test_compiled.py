"""What torch.compile makes of the operators, at 33 elements: with vectors, and a rest that is shorter than a vector."""

from __future__ import annotations

import math

import pytest
import torch
from reports import DOUBLE, NAN
from stubs import same
from torch import Tensor


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()


def compiled(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.fmod(x, y), torch.remainder(x, y), torch.special.gammainc(y * NAN, x), x.to(torch.uint16) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels(dtype: torch.dtype) -> None:
    large, small = (1e38, -1e-3) if dtype == torch.float32 else (1e308, -0.4)
    x, y = torch.full((33,), large, dtype=dtype), torch.full((33,), small, dtype=dtype)
    mod, remainder, nan, _ = torch.compile(compiled, fullgraph=True)(x, y)
    expected = math.fmod(x[0].item(), y[0].item())
    same(mod, torch.full((33,), expected, dtype=dtype))
    same(remainder, torch.full((33,), expected + y[0].item(), dtype=DOUBLE).to(dtype))
    assert nan.isnan().all()


def differentiable(x: Tensor) -> Tensor:
    return (
        torch.sinc(x)
        + torch.logaddexp(x, x * 0 + 1000)
        + torch.logaddexp2(x, x * 0 + 3000)
        + torch.special.bessel_j0(x)
    )


def test_formulas() -> None:
    """sinc' = 0 at 0; the weights are 0; J0' = -J1 = 0."""
    x = torch.zeros(33, dtype=DOUBLE, requires_grad=True)
    (found,) = torch.autograd.grad(torch.compile(differentiable, fullgraph=True)(x).sum(), x)
    same(found.abs(), torch.zeros(33, dtype=DOUBLE))
    # Compilers have one order; the second is compiled as a graph of the first.
    second = torch.compile(torch.func.vmap(torch.func.grad(torch.func.grad(differentiable))), fullgraph=True)
    torch.testing.assert_close(second(x.detach()), torch.full((33,), -(math.pi**2) / 3 - 0.5, dtype=DOUBLE))
