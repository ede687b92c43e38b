"""Names that torchgen keeps in Python lists: upstream, whoever adds an operator edits them in the same change.

For the operators of a native folder they are derived from what the folder says already. A graft extends the lists of
the process that generates; a source tree, whose own build generates, gets them written behind torchgen's files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
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
    extend_lists(missing_names(functions, derivatives))
    try:
        yield
    finally:
        for each, content in zip(_LISTS, before, strict=True):
            each.clear()
            each.extend(content) if isinstance(each, list) else each.update(content)


@dataclass(frozen=True)
class Lists:
    """What the lists lack.

    Args:
        without_out: operators that return no tensor, and so can have no out= variant.
        views: for operators that return a view, the argument that it is a view of.
        for_complex: operators whose gradients are right for complex tensors. Upstream's list means "it was checked for
            complex inputs". Here the formula is the promise; gradcheck with complex inputs keeps it.
    """

    without_out: tuple[str, ...]
    views: dict[str, str]
    for_complex: tuple[str, ...]


def missing_names(functions: Sequence[Entry], derivatives: Sequence[Entry]) -> Lists:
    """Derive what the lists lack from the new entries of native_functions.yaml and derivatives.yaml."""
    without_out: list[str] = []
    views: dict[str, str] = {}
    for entry in functions:
        text = str(entry.get("func", "")).partition("::")
        try:
            schema = FunctionSchema.parse(text[2] or text[0])
        except Exception:
            continue
        has_tensor = any(r.type.is_tensor_like() for r in schema.returns)
        if not has_tensor and str(schema.name) not in FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT:
            without_out.append(str(schema.name))
        viewed, name = viewed_argument(schema), str(schema.name.name)
        if viewed and not is_composite_implicit(entry) and name not in VIEW_FUNCTIONS:
            views.setdefault(name, viewed)
    names = {str(entry.get("name", "")).split("(")[0].split(".")[0] for entry in derivatives}
    # torchgen derives the formula of the copy that functionalization puts in a view's place.
    names |= {f"{name}_copy" for name in names if name in views}
    return Lists(tuple(without_out), views, tuple(sorted(names - GRADIENT_IMPLEMENTED_FOR_COMPLEX)))


def extend_lists(lists: Lists) -> None:
    """Add to torchgen's lists what they lack, for this process."""
    FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend(lists.without_out)
    VIEW_FUNCTIONS.update(lists.views)
    ALL_VIEW_FUNCTIONS.update(lists.views)
    RETURNS_VIEWS_OF_INPUT.update(lists.views)
    GRADIENT_IMPLEMENTED_FOR_COMPLEX.update(lists.for_complex)


def texts(lists: Lists) -> dict[str, str]:
    """What does that for every process, behind the text of torchgen's files, by their names in a wheel."""
    found = {}
    if lists.without_out:
        names = "".join(f'    "{name}",\n' for name in lists.without_out)
        text = f"FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend([\n{names}])\n"
        found["torchgen/native_function_generation.py"] = text
    if lists.views:
        names = "".join(f'    "{name}": "{viewed}",\n' for name, viewed in lists.views.items())
        found["torchgen/packaged/autograd/gen_inplace_or_view_type.py"] = (
            f"_ADDED_VIEWS = {{\n{names}}}\n"
            "for _views in (VIEW_FUNCTIONS, ALL_VIEW_FUNCTIONS, RETURNS_VIEWS_OF_INPUT):\n"
            "    _views.update(_ADDED_VIEWS)\n"
        )
    if lists.for_complex:
        names = "".join(f'    "{name}",\n' for name in lists.for_complex)
        text = f"GRADIENT_IMPLEMENTED_FOR_COMPLEX.update([\n{names}])\n"
        found["torchgen/packaged/autograd/gen_variable_type.py"] = text
    return found


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
