"""Generate the call for a seed: a valid call with changes, or one generated from the schema alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch

from .corpus import Call
from .tensors import DTYPES, FILLS, LAYOUTS, Described

SIZES = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65]
HUGE = [1 << 20, 1 << 31, (1 << 31) + 1, 1 << 33, 1 << 40, 1 << 62]
INTEGERS = [-1, 0, 1, 2, 3, 5, -2, 100, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 62, (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-310, 1e38, 1e308, math.inf, -math.inf, math.nan]
STRINGS = ["", "none", "mean", "sum", "same", "valid", "full", "zeros", "\0", "é" * 40]

# Percentages: calls generated from the schema, and calls with a tensor too large for any memory.
MADE_UP, BEYOND = 15, 3


def call_of(seed: int, overloads: Sequence[torch._ops.OpOverload], right: Mapping[str, list[Call]]) -> tuple[Any, Call]:
    """Return the overload and the arguments for ``seed``."""
    random = Random(seed)
    overload = random.choice(overloads)
    known = right.get(str(overload.name()), [])
    is_made_up = not known or random.randrange(100) < MADE_UP
    call = made_up(overload, random) if is_made_up else dict(random.choice(known))
    # Most calls stay valid except for their memory layouts, so that they reach the kernels.
    changes = random.choice([0, 0, 1, 1, 1, 2, 4])
    for _ in range(changes):
        random.choice(CHANGES)(call, overload, random)
    if random.randrange(100) < BEYOND:
        change_to_huge(call, overload, random)
    wants_gradient = not overload._schema.is_mutable and not random.randrange(4)
    return overload, change_layouts(call, overload, random, wants_gradient)


def made_up(overload: torch._ops.OpOverload, random: Random) -> Call:
    """Return arguments of the schema's types."""
    shapes = [tuple(random.choice(SIZES[:8]) for _ in range(random.randrange(6))) for _ in range(2)]
    dtype = random.choice(DTYPES)

    def value(kind: str, length: int | None) -> Any:
        if kind.startswith("Optional["):
            return None if random.randrange(2) else value(kind[9:-1], length)
        if kind.startswith("List["):
            count = length or random.randrange(4)
            return [value(kind[5:-1], None) for _ in range(count)]
        if kind == "Tensor":
            return Described(random.choice(shapes), dtype, seed=random.randrange(1 << 30))
        if kind == "number":
            return random.choice([random.choice(INTEGERS[:8]), random.choice(FLOATS), 1 - 2j, True])
        simple: dict[str, Callable[[], Any]] = {
            "int": lambda: random.choice(INTEGERS),
            "float": lambda: random.choice(FLOATS),
            "bool": lambda: random.random() < 0.5,
            "str": lambda: random.choice(STRINGS),
        }
        return simple[kind]() if kind in simple else None

    return {a.name: value(str(a.type), a.N) for a in overload._schema.arguments}


def tensors_in(call: Call) -> list[str]:
    """Return the names of the tensor arguments."""
    return [name for name, value in call.items() if isinstance(value, Described)]


def change_tensors(call: Call, random: Random, change: Callable[[Described], Described]) -> None:
    """Apply ``change`` to all tensors or to one."""
    names = tensors_in(call)
    chosen = names if not names or random.randrange(2) else [random.choice(names)]
    for name in chosen:
        call[name] = change(call[name])


def change_size(call: Call, overload: Any, random: Random) -> None:
    """Replace one size wherever it occurs, or in one tensor."""
    sizes = sorted({size for name in tensors_in(call) for size in call[name].shape})
    if sizes:
        old, new = random.choice(sizes), random.choice(SIZES)
        change_tensors(
            call, random, lambda x: replace(x, shape=tuple(new if size == old else size for size in x.shape))
        )


def change_dimensions(call: Call, overload: Any, random: Random) -> None:
    """Add or remove a dimension."""
    at = random.randrange(5)
    more = random.choice([(), (), (1,), (2,), (0,), (3, 1)])
    change_tensors(
        call, random, lambda x: replace(x, shape=(*x.shape[:at], *more, *x.shape[at + (not more) :]), seed=x.seed + 1)
    )


def change_dtype(call: Call, overload: Any, random: Random) -> None:
    """Change the dtype."""
    dtype = random.choice(DTYPES)
    change_tensors(call, random, lambda x: replace(x, dtype=dtype))


def change_fill(call: Call, overload: Any, random: Random) -> None:
    """Insert special values."""
    fill = random.choice(list(FILLS))
    change_tensors(call, random, lambda x: replace(x, fill=fill, seed=random.randrange(1 << 30)))


def change_values(call: Call, overload: Any, random: Random) -> None:
    """Use meta tensors."""
    change_tensors(call, random, lambda x: replace(x, like=None, seed=random.randrange(1 << 30)))


def change_device(call: Call, overload: Any, random: Random) -> None:
    """Use empty tensors."""
    if not random.randrange(4):
        change_tensors(call, random, lambda x: replace(x, device="meta"))


def change_to_huge(call: Call, overload: Any, random: Random) -> None:
    """Use a size that no memory holds, by expanding a dimension of size one."""
    at, size = random.randrange(4), random.choice(HUGE)
    change_tensors(
        call, random, lambda x: replace(x, shape=(*x.shape[:at], size, *x.shape[at + 1 :])) if x.shape[at:] else x
    )


def change_number(call: Call, overload: Any, random: Random) -> None:
    """Change an argument that is not a tensor."""
    names = [name for name in call if name not in tensors_in(call)]
    if names:
        name = random.choice(names)
        other = made_up(overload, random)[name]
        if isinstance(call[name], (list, tuple)) and call[name] and isinstance(other, list) and random.randrange(2):
            values = list(call[name])
            values[random.randrange(len(values))] = other[0] if other else -1
            other = values
        small = isinstance(other, int) and not isinstance(other, bool) and random.randrange(2)
        call[name] = random.randrange(4) if small else other


CHANGES = [
    change_size,
    change_size,
    change_dimensions,
    change_dtype,
    change_fill,
    change_values,
    change_device,
    change_number,
    change_number,
]


def change_layouts(call: Call, overload: Any, random: Random, wants_gradient: bool) -> Call:
    """Change the strides of some tensors, and require gradients in some calls."""
    written_to = [argument.name for argument in overload._schema.arguments if argument.is_write]

    def change(name: str, x: Described) -> Described:
        layout = random.choice([*LAYOUTS, "contiguous", "contiguous"])
        # With several mutated tensors, PyTorch's fallback for these views fails an assertion that there is one.
        is_refused = layout in ("conjugated", "negated") and name in written_to and len(written_to) > 1
        return replace(x, layout="contiguous" if x.is_huge or is_refused else layout, requires_grad=wants_gradient)

    return {name: change(name, value) if isinstance(value, Described) else value for name, value in call.items()}
