"""Draw calls with hypothesis: valid calls with changes, and calls made up from the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from .tensors import FILLS, LAYOUTS, Described
from .valid import Call, overload_of

# Sizes around those of vectors, and sizes that no memory holds.
SIZES = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65]
HUGE = [1 << 20, 1 << 31, (1 << 31) + 1, 1 << 33, 1 << 40, 1 << 62]
INTEGERS = [-1, 0, 1, 2, 3, 5, -2, 100, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 62, (1 << 63) - 1, -(1 << 63)]
STRINGS = ["", "none", "mean", "sum", "same", "valid", "full", "zeros", "\0", "é" * 40]
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.bool, torch.float8_e5m2,
]  # fmt: skip

SEEDS = st.integers(0, 1 << 30)
SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(0, 3) | st.sampled_from(INTEGERS),
    "float": st.floats(),
    "number": st.sampled_from([*INTEGERS[:8], 1 - 2j, True]) | st.floats(),
    "bool": st.booleans(),
    "str": st.sampled_from(STRINGS) | st.text(max_size=3),
}

# Most calls stay valid except for their memory layouts, so that they reach the kernels.
CHANGES = st.sampled_from([0, 0, 1, 1, 1, 2, 4])
KINDS = st.sampled_from(
    ["fill", "fill", "dtype", "dtype", "dimension", "dimension", "values", "values", "meta", "huge"]
    + ["size", "argument"] * 4
)
MADE_UP = st.sampled_from([False] * 6 + [True])


@st.composite
def calls(draw: st.DrawFn, valid: Mapping[str, Sequence[Call]]) -> tuple[str, Call]:
    """Draw the name of an overload and its arguments.

    Args:
        valid: the valid calls of each overload.
    """
    name = draw(st.sampled_from(sorted(valid)))
    schema = overload_of(name)._schema
    if not valid[name] or draw(MADE_UP):
        return name, _laid_out(draw, schema, _made_up(draw, schema))
    call = dict(draw(st.sampled_from(valid[name])))
    for _ in range(draw(CHANGES)):
        _change(draw, schema, call)
    return name, _laid_out(draw, schema, call)


def _made_up(draw: st.DrawFn, schema: Any) -> Call:
    """Draw arguments of the schema's types. Tensors share a dtype and two shapes."""
    shapes = draw(st.lists(st.lists(st.sampled_from(SIZES[:8]), max_size=5).map(tuple), min_size=1, max_size=2))
    tensors = st.builds(Described, st.sampled_from(shapes), st.just(draw(st.sampled_from(DTYPES))), SEEDS)
    return {a.name: draw(_values(str(a.type), a.N, tensors)) for a in schema.arguments}


def _values(kind: str, length: int | None, tensors: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a schema's type."""
    if kind.startswith("Optional["):
        return st.none() | _values(kind[9:-1], length, tensors)
    if kind.startswith("List["):
        return st.lists(_values(kind[5:-1], None, tensors), min_size=length or 0, max_size=length or 4)
    return tensors if kind == "Tensor" else SIMPLE.get(kind, st.none())


def _change(draw: st.DrawFn, schema: Any, call: Call) -> None:
    """Change an argument that is no tensor, or in the same way all tensors or one."""
    kind = draw(KINDS)
    names = [name for name, value in call.items() if isinstance(value, Described)]
    others = [argument for argument in schema.arguments if argument.name not in names]
    if kind == "argument" and others:
        argument = draw(st.sampled_from(others))
        call[argument.name] = draw(_values(str(argument.type), argument.N, st.none()))
    elif kind != "argument" and names:
        change = _change_of(draw, kind, sorted({size for name in names for size in call[name].shape}))
        for name in draw(st.just(names) | st.sampled_from(names).map(lambda name: [name])):
            call[name] = change(call[name])


def _change_of(draw: st.DrawFn, kind: str, sizes: list[int]) -> Callable[[Described], Described]:
    """Draw a change of a tensor; ``sizes`` are those that occur."""
    at, seed = draw(st.integers(0, 4)), draw(SEEDS)
    if kind == "size" and sizes:
        old, new = draw(st.sampled_from(sizes)), draw(st.sampled_from(SIZES))
        return lambda x: replace(x, shape=tuple(new if size == old else size for size in x.shape))
    if kind == "dimension":
        more = draw(st.sampled_from([(), (), (1,), (2,), (0,), (3, 1)]))
        return lambda x: replace(x, shape=(*x.shape[:at], *more, *x.shape[at + (not more) :]))
    if kind == "huge":  # a dimension is expanded
        huge = draw(st.sampled_from(HUGE))
        return lambda x: replace(x, shape=(*x.shape[:at], huge, *x.shape[at + 1 :])) if x.shape[at:] else x
    if kind == "dtype":
        dtype = draw(st.sampled_from(DTYPES))
        return lambda x: replace(x, dtype=dtype)
    if kind == "fill":
        fill = draw(st.sampled_from(sorted(FILLS)))
        return lambda x: replace(x, fill=fill, seed=seed)
    if kind == "meta":
        return lambda x: replace(x, device="meta")
    return lambda x: replace(x, like=None, seed=seed)


def _laid_out(draw: st.DrawFn, schema: Any, call: Call) -> Call:
    """Draw the strides of tensors, and for some calls that they require gradients."""
    wants_gradient = not schema.is_mutable and draw(st.sampled_from([False] * 3 + [True]))
    written_to = [argument.name for argument in schema.arguments if argument.is_write]
    layouts = st.sampled_from(["contiguous"] * 2 + list(LAYOUTS))

    def laid_out(name: str, x: Described) -> Described:
        layout = draw(layouts)
        # With several mutated tensors, PyTorch's fallback for these views fails an assertion that there is one.
        is_refused = layout in ("conjugated", "negated") and name in written_to and len(written_to) > 1
        return replace(x, layout="contiguous" if x.is_huge or is_refused else layout, requires_grad=wants_gradient)

    return {name: laid_out(name, value) if isinstance(value, Described) else value for name, value in call.items()}
