"""mul_constant: a number that is not converted to a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ..case import Case, Side, backward


def cases() -> Iterator[Case]:
    """Sizes from one element to 16 Mi, and dtypes that compute in another."""
    for exponent in (0, 4, 8, 12, 16, 20, 24):
        yield Case(
            "mul_constant", "torch.mul", f"2^{exponent} float", "forward", 0.98, partial(_out, exponent, torch.float)
        )
    for dtype in (torch.double, torch.half, torch.bfloat16, torch.int32, torch.complex64):
        name = f"2^16 {str(dtype).removeprefix('torch.')}"
        yield Case("mul_constant", "torch.mul", name, "forward", 0.98, partial(_out, 16, dtype))
    yield Case("mul_constant", "torch.mul", "2^16 float", "backward", 0.98, _backward)


def _out(exponent: int, dtype: torch.dtype) -> tuple[Side, Side]:
    x, z = (torch.ones(2**exponent, dtype=dtype) for _ in "xz")
    return lambda: torch.mul_constant(x, 3, out=z), lambda: torch.mul(x, 3, out=z)


def _backward() -> tuple[Side, Side]:
    x = torch.ones(2**16, requires_grad=True)
    return backward(lambda x: torch.mul_constant(x, 3), lambda x: torch.mul(x, 3), x)
