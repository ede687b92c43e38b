"""twice_plus: the cost of a call in each variant, and of an element at each size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ..case import Case, Side, backward

_add = partial(torch.add, alpha=2)


def _call(form: str, size: int) -> tuple[Side, Side]:
    x, y, z = torch.ones(size), torch.ones(size), torch.ones(size)
    native = torch.ops.aten
    return {
        "torch.": (lambda: torch.twice_plus(x, y), lambda: torch.add(y, x, alpha=2)),
        "method": (lambda: x.twice_plus(y), lambda: y.add(x, alpha=2)),
        "out=": (lambda: torch.twice_plus(x, y, out=z), lambda: torch.add(y, x, alpha=2, out=z)),
        "torch.ops": (lambda: native.twice_plus(x, y), lambda: native.add(y, x, alpha=2)),
    }[form]


def cases() -> Iterator[Case]:
    """Calls on one element, then out= for sizes up to 64 Mi, where memory bandwidth is the limit."""
    for form in ("torch.", "method", "out=", "torch.ops"):
        name = f"1 element, {form}"
        yield Case("twice_plus", "torch.add(alpha=2)", name, "forward", 0.98, partial(_call, form, 1))
    for exponent in range(4, 27, 2):
        name = f"2^{exponent} elements"
        yield Case("twice_plus", "torch.add(alpha=2)", name, "forward", 0.98, partial(_call, "out=", 2**exponent))
    for exponent in (10, 20):
        yield Case(
            "twice_plus",
            "torch.add(alpha=2)",
            f"2^{exponent} elements",
            "backward",
            0.98,
            partial(_backward, 2**exponent),
        )


def _backward(size: int) -> tuple[Side, Side]:
    x, y = (torch.ones(size, requires_grad=True) for _ in "xy")
    return backward(torch.twice_plus, lambda x, y: _add(y, x), x, y)
