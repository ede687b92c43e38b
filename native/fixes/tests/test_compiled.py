"""What torch.compile makes of the operators, at 33 elements: with vectors, and a rest that is shorter than a vector."""

from __future__ import annotations

import math

import pytest
import torch
from reports import DOUBLE, INF, NAN
from reversing import PROGRAMS
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


def activations(x: Tensor) -> tuple[Tensor, ...]:
    gelu = torch.nn.functional.gelu
    return gelu(x), gelu(x, approximate="tanh"), torch.nn.functional.silu(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_activations_of_infinities(dtype: torch.dtype) -> None:
    x = torch.tensor([INF, -INF, NAN, 1.0, -3.0, 2000.0, -2000.0] * 5, dtype=dtype)
    for found, eager in zip(torch.compile(activations, fullgraph=True)(x), activations(x), strict=True):
        torch.testing.assert_close(found, eager, equal_nan=True)
        assert found[:3].tolist()[:2] == [INF, 0] and found[2].isnan()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dims", [(0, 2, 1), (1, 0, 2), (0, 1, 2)])
def test_batch_norm_has_the_strides_of_the_kernel(dims: tuple[int, ...], training: bool) -> None:
    x = torch.rand(3, 4, 5).permute(dims)
    norm = torch.nn.BatchNorm1d(x.shape[1]).train(training)
    eager = norm(x)
    found = torch.compile(lambda x: norm(x).view(-1), fullgraph=True)(x)
    torch.testing.assert_close(found, eager.view(-1))
    image = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = torch.nn.functional.batch_norm(mode.from_tensor(image), torch.ones(3), torch.ones(3), training=training)
    assert fake.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_an_operator_reads_is_not_what_it_writes(program) -> None:
    x, y = torch.arange(8.0), torch.arange(8.0)
    same(torch.compile(program, fullgraph=True)(x), program(y))
    same(x, y)
