"""Checks of the vectorized kernels. Run as a program, it makes them with the CPU capability in use."""

from __future__ import annotations

import math
from functools import cache

import mpmath
import torch
from layouts import LAYOUTS, SIZES, laid_out, repeated
from reports import INF, NAN
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Dividends and divisors; where their ratio overflows, Sleef's fmod is nan.
_LARGE = {torch.float32: 1e38, torch.float64: 1e308, torch.bfloat16: 1e38, torch.float16: 6e4}
_SMALL = {torch.float32: 1e-3, torch.float64: 0.4, torch.bfloat16: 1e-3, torch.float16: 1e-3}

_SHAPES_AND_LIMITS = [
    (NAN, INF),
    (INF, NAN),
    (NAN, 1.0),
    (0.5, NAN),
    (0.5, 0.25),
    (2.0, 3.0),
    (INF, 1.0),
    (1.0, INF),
    (30.0, 28.0),
]


def check_stubs() -> None:
    """Check fmod, remainder, igamma and igammac at each size, dtype and layout."""
    for dtype in DTYPES:
        for size in SIZES:
            for layout in LAYOUTS:
                _check_fmod(dtype, size, layout)
                _check_igamma(dtype, size, layout)
                _check_activations(dtype, size, layout)


def _check_activations(dtype: torch.dtype, size: int, layout: str) -> None:
    """Of infinities, nan, and what comes before the limits: there results are PyTorch's."""
    values = [INF, -INF, NAN, 1.0, -2.5, 99.0, -99.0, 101.0, -101.0, 999.0, -1001.0]
    x = laid_out(repeated(values, size, dtype), layout)
    gelu = torch.nn.functional.gelu
    for function in (gelu, lambda x: gelu(x, approximate="tanh"), torch.nn.functional.silu):
        found = function(x)
        expected = function(x.double().nan_to_num(NAN, 1e4, -1e4)).to(dtype).where(x.isfinite() | x.isnan(), x.relu())
        torch.testing.assert_close(found, expected, equal_nan=True)


def _fmod(a: float, b: float) -> float:
    return NAN if math.isinf(a) or b == 0 or math.isnan(a) or math.isnan(b) else math.fmod(a, b)


def _remainder(a: float, b: float) -> float:
    mod = _fmod(a, b)
    return mod + b if mod != 0 and (b < 0) != (mod < 0) else mod


def _check_fmod(dtype: torch.dtype, size: int, layout: str) -> None:
    large, small = _LARGE[dtype], _SMALL[dtype]
    dividends = [large, -large, large, 5.5, -5.5, INF, 1.0, NAN, 1.0, large, -7.0]
    divisors = [small, small, -small, 2.0, 2.0, 1.0, INF, 1.0, 0.0, small * 3, -3.0]
    a, b = repeated(dividends, size, dtype), repeated(divisors, size, dtype)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    x, y = laid_out(a, layout), laid_out(b, layout)
    for function, exact in ((torch.fmod, _fmod), (torch.remainder, _remainder)):
        expected = torch.tensor([exact(*pair) for pair in pairs], dtype=torch.float64).to(dtype).reshape(x.shape)
        same(function(x, y), expected)
        same(function(x, y, out=torch.empty_like(x)), expected)
        same(getattr(x.clone(), f"{function.__name__}_")(y), expected)
    same(x % y, expected)
    scalar = torch.tensor([_fmod(each, small) for each in a.tolist()], dtype=torch.float64)
    if dtype == torch.float64:  # of others the number is rounded to their dtype, or not, by the kernel
        same(torch.fmod(x, small), scalar.reshape(x.shape))


@cache
def _gammainc(a: float, x: float) -> tuple[float, float]:
    if math.isnan(a) or math.isnan(x):
        return NAN, NAN
    if math.isinf(a) or math.isinf(x):
        return (0.0, 1.0) if math.isinf(a) else (1.0, 0.0)
    return float(mpmath.gammainc(a, 0, x, regularized=True)), float(mpmath.gammainc(a, x, mpmath.inf, regularized=True))


def _check_igamma(dtype: torch.dtype, size: int, layout: str) -> None:
    a = repeated([shape for shape, _ in _SHAPES_AND_LIMITS], size, dtype)
    b = repeated([limit for _, limit in _SHAPES_AND_LIMITS], size, dtype)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    x, y = laid_out(a, layout), laid_out(b, layout)
    for which, function in enumerate((torch.igamma, torch.igammac)):
        expected = (
            torch.tensor([_gammainc(*pair)[which] for pair in pairs], dtype=torch.float64).to(dtype).reshape(x.shape)
        )
        close(function(x, y), expected)
        close(function(x, y, out=torch.empty_like(x)), expected)
        close(getattr(x.clone(), f"{function.__name__}_")(y), expected)


def same(found: Tensor, expected: Tensor) -> None:
    """Check that values are the same, also where they are nan."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def close(found: Tensor, expected: Tensor) -> None:
    """Check that values are close for their dtype, also where they are nan."""
    torch.testing.assert_close(found, expected, equal_nan=True)


if __name__ == "__main__":
    check_stubs()
