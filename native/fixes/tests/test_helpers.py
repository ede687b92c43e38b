"""Helpers of formulas that this folder replaces, in each operator that calls them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from layouts import SIZES
from reports import DOUBLE
from torch import Tensor, _graft
from torch.func import jacfwd, jacrev, jvp, vmap
from torch.nn import functional as F

EPS = 0.25


def normalized(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return batch_norm in training, by its definition."""
    dims, shape = [dim for dim in range(x.dim()) if dim != 1], [-1] + [1] * (x.dim() - 2)
    centered = x - x.mean(dims, keepdim=True)
    scaled = centered / (centered.square().mean(dims, keepdim=True) + EPS).sqrt()
    return scaled * weight.reshape(shape) + bias.reshape(shape)


OPERATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=EPS),
    "native_batch_norm": lambda x, w, b: torch.native_batch_norm(x, w, b, None, None, True, 0.1, EPS)[0],
    "_native_batch_norm_legit": lambda x, w, b: torch.ops.aten._native_batch_norm_legit.no_stats(
        x, w, b, True, 0.1, EPS
    )[0],
}


def second(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """Return the second derivative along the tangents, in forward mode."""
    return jvp(lambda *x: jvp(function, x, tangents)[1], inputs, tangents)[1]


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("is_training", [True, False])
def test_batch_norm_of_large_values(dtype: torch.dtype, is_training: bool) -> None:
    """The tangent has the digits of the dtype: squares of what is centered would overflow in half."""
    torch.manual_seed(0)
    x, v = (torch.randn(8, 3, 5) * 400 + 300).to(dtype), torch.randn(8, 3, 5).to(dtype)
    mean, var = x.float().mean((0, 2)), x.float().var((0, 2))

    def function(t: Tensor) -> Tensor:
        return F.batch_norm(t, mean.to(t.dtype), var.to(t.dtype), None, None, is_training, eps=EPS)

    mean, var = mean.to(dtype).double(), var.to(dtype).double()
    found, expected = jvp(function, (x,), (v,))[1], jvp(function, (x.double(),), (v.double(),))[1]
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_batch_norm(size: int, dtype: torch.dtype, operator: str) -> None:
    """pytorch#196699: the first and the second derivative, of all inputs, against the definition in float64."""
    torch.manual_seed(0)
    shapes = (4, 3, size), (3,), (3,)
    inputs = tuple(torch.randn(shape, dtype=dtype) for shape in shapes)
    tangents = tuple(torch.randn(shape, dtype=dtype) for shape in shapes)
    in_double = tuple(each.double() for each in inputs), tuple(each.double() for each in tangents)
    # Each of some twenty operations rounds, in bfloat16 to 8 bits, and terms of the second derivative cancel.
    tolerances = {torch.float32: (1e-5, 1e-4), DOUBLE: (1e-10, 1e-10), torch.bfloat16: (0.05, 0.3)}
    rtol, atol = tolerances[dtype]
    function = OPERATORS[operator]
    found = jvp(function, inputs, tangents)[1], second(function, inputs, tangents)
    expected = jvp(normalized, *in_double)[1], second(normalized, *in_double)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.to(dtype), rtol=rtol, atol=atol)
    if dtype == DOUBLE and size > 1:
        with _graft.stock():
            is_wrong = not torch.allclose(second(function, inputs, tangents), expected[1])
        assert is_wrong, f"PyTorch {torch.__version__} has the fix of #196699: delete it, or give it `releases`"


def test_batch_norm_in_other_layouts_and_modes() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 4, 5, dtype=DOUBLE), torch.randn(3, dtype=DOUBLE), torch.randn(3, dtype=DOUBLE)
    tangent = torch.randn_like(x)
    expected = second(lambda x: normalized(x, weight, bias), (x,), (tangent,))
    for layout in (torch.contiguous_format, torch.channels_last):
        found = second(
            lambda x: F.batch_norm(x, None, None, weight, bias, True, eps=EPS),
            (x.contiguous(memory_format=layout),),
            (tangent.contiguous(memory_format=layout),),
        )
        torch.testing.assert_close(found, expected)

    # With running statistics, batch_norm is linear in its input.
    mean, var = torch.randn(3, dtype=DOUBLE), torch.rand(3, dtype=DOUBLE) + 1
    for w in (weight, None):
        function = partial(F.batch_norm, running_mean=mean, running_var=var, weight=w, eps=EPS)
        found = jvp(function, (x,), (tangent,))[1]
        factor = (var + EPS).rsqrt() * (1 if w is None else w)
        torch.testing.assert_close(found, tangent * factor.reshape(3, 1, 1))


def test_hessian_of_batch_norm_and_group_norm() -> None:
    """group_norm calls the same helper, with arguments for which it was right."""
    torch.manual_seed(0)
    x, weights = torch.randn(33, 4, 2, dtype=DOUBLE), torch.randn(4, 2, dtype=DOUBLE)

    def of_batch(x: Tensor) -> Tensor:
        return (F.batch_norm(x, None, None, None, None, True) * weights).sum()

    def of_group(x: Tensor) -> Tensor:
        return (F.group_norm(x[None], 2)[0].flatten() * weights.flatten()).sum()

    for function, inputs in ((of_batch, x), (of_group, x.reshape(33, 4, 2))):
        found, expected = (
            vmap(outer(inner(function)))(inputs) for outer, inner in ((jacfwd, jacfwd), (jacrev, jacrev))
        )
        torch.testing.assert_close(found, expected)
