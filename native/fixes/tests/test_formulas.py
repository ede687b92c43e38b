"""Derivative formulas that this folder replaces, in reverse and forward mode, to the order of the report and beyond."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mpmath
import pytest
import torch
from layouts import LAYOUTS, SIZES, laid_out
from reports import DOUBLE, derivative
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vmap

mpmath.mp.dps = 40

BESSEL = {
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "modified_bessel_i0": lambda x: mpmath.besseli(0, x),
    "modified_bessel_i1": lambda x: mpmath.besseli(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
}


def exact(function: Callable[..., mpmath.mpf], values: Tensor, order: int) -> Tensor:
    """Return derivatives in 40 digits, rounded to float64."""
    found = [float(mpmath.diff(function, mpmath.mpf(x), order)) for x in values.flatten().double().tolist()]
    return torch.tensor(found, dtype=DOUBLE).reshape(values.shape)


def sinc(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.sincpi(x)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_sinc(order: int) -> None:
    """At 0, near 0, on both sides of the place where the series ends, and far from it."""
    x = torch.tensor([0.0, -0.0, 1e-30, 1e-9, -1e-4, 0.1, 0.3183, 0.3184, -0.5, 1.0, 2.5, -30.0], dtype=DOUBLE)
    expected = exact(sinc, x, order)
    torch.testing.assert_close(
        derivative(torch.sinc, x.clone().requires_grad_(), order), expected, rtol=1e-10, atol=1e-10
    )
    function: Callable[[Tensor], Tensor] = torch.sinc
    for _ in range(order):
        function = grad(function)
    torch.testing.assert_close(vmap(function)(x), expected, rtol=1e-10, atol=1e-10)
    function = torch.sinc
    for _ in range(order):
        function = forward(function)
    torch.testing.assert_close(function(x), expected, rtol=1e-10, atol=1e-10)


def forward(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the derivative of a pointwise function, in forward mode."""
    return lambda x: jvp(function, (x,), (torch.ones_like(x),))[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
def test_sinc_of_each_size(size: int, layout: str, dtype: torch.dtype) -> None:
    values = torch.linspace(-1, 1, size, dtype=DOUBLE).to(dtype)
    values[size // 2] = 0
    points, where = values.unique(return_inverse=True)
    # In bfloat16, each of the operations rounds to 8 bits.
    tolerances = {"rtol": 0.05, "atol": 0.1} if dtype == torch.bfloat16 else {}
    for order in (1, 2):
        expected = exact(sinc, points, order)[where].to(dtype)
        x = laid_out(values, layout).requires_grad_()
        torch.testing.assert_close(derivative(torch.sinc, x, order), expected.reshape(x.shape), **tolerances)
        in_place = derivative(lambda x: x.mul(1).sinc_(), x, order)
        torch.testing.assert_close(in_place, expected.reshape(x.shape), **tolerances)


def test_sinc_of_complex_numbers() -> None:
    x = torch.tensor([0, 0.1j, 0.2 + 0.1j, 1 - 1j], dtype=torch.complex128, requires_grad=True)
    assert gradcheck(torch.sinc, (x,), check_forward_ad=True)
    assert gradgradcheck(torch.sinc, (x,))


@pytest.mark.parametrize("base", [mpmath.e, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logaddexp(dtype: torch.dtype, layout: str, size: int, base: mpmath.mpf) -> None:
    function = torch.logaddexp2 if base == 2 else torch.logaddexp
    values = torch.linspace(-3000, 3000, size, dtype=DOUBLE).to(dtype)
    values[: size // 2] /= 40
    values[size // 2] = 0 if size > 1 else -2000

    def weight(x: float) -> mpmath.mpf:
        return 1 / (1 + mpmath.power(base, -mpmath.mpf(x)))

    weights = [weight(x) for x in values.tolist()]
    others = [weight(-x) for x in values.tolist()]
    x = laid_out(values, layout).requires_grad_()
    y = torch.zeros_like(x, requires_grad=True)
    first = torch.tensor([float(w) for w in weights], dtype=DOUBLE).to(dtype).reshape(x.shape)
    other = torch.tensor([float(w) for w in others], dtype=DOUBLE).to(dtype).reshape(x.shape)
    second = (
        torch.tensor([float(v * w * mpmath.log(base)) for v, w in zip(weights, others, strict=True)], dtype=DOUBLE)
        .to(dtype)
        .reshape(x.shape)
    )
    dx, dy = torch.autograd.grad(function(x, y).sum(), (x, y), create_graph=True)
    # Relative, so that both tails count; each of the operations rounds.
    tolerances = {torch.bfloat16: 0.04, torch.float32: 1e-5, torch.float64: 1e-12}
    close = partial(torch.testing.assert_close, rtol=tolerances[dtype], atol=torch.finfo(dtype).tiny)
    close(dx, first)
    close(dy, other)
    for found, expected in zip(
        torch.autograd.grad(dx.sum(), (x, y), retain_graph=True), (second, -second), strict=True
    ):
        close(found, expected)
    close(forward(forward(lambda x: function(x, y.detach())))(x.detach()), second)
    close(forward(forward(lambda y: function(x.detach(), y)))(y.detach()), second)
    if size == 33 and layout == "contiguous":
        close(vmap(grad(grad(function)))(x.detach(), y.detach()), second)


def test_logaddexp_of_complex_numbers() -> None:
    x = torch.tensor([1 + 1j, -2j, 800], dtype=torch.complex128, requires_grad=True)
    y = torch.tensor([0.5 - 1j, 3, 1], dtype=torch.complex128, requires_grad=True)
    assert gradcheck(torch.logaddexp, (x, y), check_forward_ad=True)
    assert gradgradcheck(torch.logaddexp, (x, y))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_cholesky_tangents(shape: tuple[int, ...], upper: bool, dtype: torch.dtype) -> None:
    """Against the derivative of what is inverted. Its tangent has a triangle that the operators do not read."""
    torch.manual_seed(0)
    diagonal = torch.linspace(1, 2, shape[-1], dtype=torch.float64).to(dtype).diag()  # real, as that of each factor
    lower = torch.randn(shape, dtype=dtype).tril(-1) + diagonal
    factor = lower.mH.contiguous() if upper else lower
    tangent = torch.randn(shape, dtype=dtype)
    tangent.diagonal(dim1=-2, dim2=-1).copy_(torch.randn(shape[:-1], dtype=torch.float64))
    right = torch.randn((*shape[:-1], 2), dtype=dtype)

    def inverse(factor: Tensor) -> Tensor:
        half = factor.triu().mH if upper else factor.tril()
        return torch.linalg.inv(half @ half.mH)

    def check(function: Callable[..., Tensor], by_definition: Callable[..., Tensor], *inputs: Tensor) -> None:
        tangents = (*(torch.randn_like(each) for each in inputs[:-1]), tangent)
        found, expected = (jvp(each, inputs, tangents)[1] for each in (function, by_definition))
        torch.testing.assert_close(found, expected)
        found, expected = (
            jvp(lambda *x, of=each: jvp(of, x, tangents)[1], inputs, tangents)[1] for each in (function, by_definition)
        )
        torch.testing.assert_close(found, expected)
        if dtype == torch.float64:
            leaves = tuple(each.clone().requires_grad_() for each in inputs)

            def of_triangle(*x: Tensor) -> Tensor:
                return function(*x[:-1], x[-1].triu() if upper else x[-1].tril())

            assert gradcheck(of_triangle, leaves, check_forward_ad=True)
            assert gradgradcheck(of_triangle, leaves, check_fwd_over_rev=True)

    check(lambda x: torch.cholesky_inverse(x, upper=upper), inverse, factor)
    check(lambda b, x: torch.cholesky_solve(b, x, upper), lambda b, x: inverse(x) @ b, right, factor)


def test_cholesky_tangents_under_vmap() -> None:
    torch.manual_seed(0)
    factors = torch.randn(33, 3, 3, dtype=DOUBLE).tril() + 3 * torch.eye(3, dtype=DOUBLE)
    right = torch.randn(3, 1, dtype=DOUBLE)

    # The backward of the operators is that of a triangular matrix, also for the triangle that they do not read.
    def inverse(x: Tensor) -> Tensor:
        return torch.cholesky_inverse(x.tril())

    def solve(x: Tensor) -> Tensor:
        return torch.cholesky_solve(right, x.tril())

    for function in (inverse, solve):
        torch.testing.assert_close(vmap(jacfwd(function))(factors), vmap(jacrev(function))(factors))


@pytest.mark.parametrize("name", BESSEL)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_bessel(order: int, name: str) -> None:
    """PyTorch's kernels have 7 digits, also in float64."""
    function, has_pole = getattr(torch.special, name), name[-2] in "yk"
    x = torch.tensor([0.5, 0.19, 0.21, 1.0, 3.0, 7.0] + ([] if has_pole else [0.0, -0.1, -2.0]), dtype=DOUBLE)
    expected = exact(BESSEL[name], x, order)
    tolerances = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(derivative(function, x.clone().requires_grad_(), order), expected, **tolerances)
    for transform in (grad, forward):
        transformed = function
        for _ in range(order):
            transformed = transform(transformed)
        torch.testing.assert_close(vmap(transformed)(x), expected, **tolerances)


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_of_each_size(name: str) -> None:
    function = getattr(torch.special, name)
    some = torch.linspace(0.5, 5, 20, dtype=torch.float32)
    derivatives = exact(BESSEL[name], some, 1).float()
    for size in SIZES:
        where = torch.arange(size) % 20
        values, expected = some[where], derivatives[where]
        for layout in LAYOUTS:
            x = laid_out(values, layout).requires_grad_()
            torch.testing.assert_close(derivative(function, x, 1), expected.reshape(x.shape), rtol=1e-4, atol=1e-5)
