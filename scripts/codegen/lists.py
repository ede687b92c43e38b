"""Names that torchgen keeps in Python lists: upstream, whoever adds an operator edits them in the same change.

For the operators of a native folder they are derived from what the folder says already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from torchgen.model import FunctionSchema
from torchgen.native_function_generation import FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT
from torchgen.packaged.autograd.gen_inplace_or_view_type import (
    ALL_VIEW_FUNCTIONS,
    RETURNS_VIEWS_OF_INPUT,
    VIEW_FUNCTIONS,
)
from torchgen.packaged.autograd.gen_variable_type import GRADIENT_IMPLEMENTED_FOR_COMPLEX

Entry = dict[str, Any]

_LISTS: tuple[Any, ...] = (
    FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT,
    VIEW_FUNCTIONS,
    ALL_VIEW_FUNCTIONS,
    RETURNS_VIEWS_OF_INPUT,
    GRADIENT_IMPLEMENTED_FOR_COMPLEX,
)


@contextmanager
def extended_lists(functions: Sequence[Entry], derivatives: Sequence[Entry]) -> Iterator[None]:
    """torchgen's lists with the new operators; afterwards they are as they were."""
    before = [copy(each) for each in _LISTS]
    extend_lists(functions, derivatives)
    try:
        yield
    finally:
        for each, content in zip(_LISTS, before, strict=True):
            each.clear()
            each.extend(content) if isinstance(each, list) else each.update(content)


def extend_lists(functions: Sequence[Entry], derivatives: Sequence[Entry]) -> None:
    """Add the new operators to torchgen's lists, for this process.

    Args:
        functions: the new entries of native_functions.yaml.
        derivatives: the new entries of derivatives.yaml.
    """
    for entry in functions:
        text = str(entry.get("func", "")).partition("::")
        try:
            schema = FunctionSchema.parse(text[2] or text[0])
        except Exception:
            continue
        if not any(r.type.is_tensor_like() for r in schema.returns):
            FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.append(str(schema.name))
        viewed = viewed_argument(schema)
        if viewed and not is_composite_implicit(entry):
            name = str(schema.name.name)
            VIEW_FUNCTIONS.setdefault(name, viewed)
            ALL_VIEW_FUNCTIONS.setdefault(name, viewed)
            RETURNS_VIEWS_OF_INPUT.add(name)
    # Upstream's list means "its gradient was checked for complex inputs". Here the formula is the promise; gradcheck
    # with complex inputs keeps it.
    for entry in derivatives:
        name = str(entry.get("name", "")).split("(")[0].split(".")[0]
        GRADIENT_IMPLEMENTED_FOR_COMPLEX.add(name)


def is_composite_implicit(entry: Entry) -> bool:
    """Whether an entry is composed of other operators; a key of ``dispatch`` may name several dispatch keys."""
    names = [name.strip() for keys in entry.get("dispatch") or {} for name in str(keys).split(",")]
    return not names or "CompositeImplicitAutograd" in names


def viewed_argument(schema: FunctionSchema) -> str | None:
    """The argument that the result is a view of, by the alias annotations: ``Tensor(a) self -> Tensor(a)``."""
    for result in schema.returns:
        annotation = result.annotation
        if annotation is None or annotation.is_write:
            continue
        for argument in schema.arguments.flat_all:
            theirs = argument.annotation
            if theirs is not None and not theirs.is_write and set(theirs.alias_set) & set(annotation.alias_set):
                return argument.name
    return None
