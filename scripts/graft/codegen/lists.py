"""Names in torchgen's Python lists. Upstream, adding an operator includes editing them.

For a native folder they are derived from its YAML. A graft extends the lists in the generating process. A source tree,
whose own build generates, gets them appended to torchgen's files.
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
    """Extend torchgen's lists with the new operators while the body runs."""
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
    """The missing entries of the lists.

    Args:
        without_out: operators that return no tensor, and so have no out= variant.
        views: for each operator that returns a view, the argument that is viewed.
        for_complex: operators with correct gradients for complex tensors. In upstream's list these were verified with
            complex inputs. Here the formula declares it, and gradcheck verifies it with complex inputs.
    """

    without_out: tuple[str, ...]
    views: dict[str, str]
    for_complex: tuple[str, ...]


def missing_names(functions: Sequence[Entry], derivatives: Sequence[Entry]) -> Lists:
    """Derive the missing list entries from the new entries of native_functions.yaml and derivatives.yaml."""
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
    # torchgen derives the formula of the copy that functionalization uses in place of a view.
    names |= {f"{name}_copy" for name in names if name in views}
    return Lists(tuple(without_out), views, tuple(sorted(names - GRADIENT_IMPLEMENTED_FOR_COMPLEX)))


def extend_lists(lists: Lists) -> None:
    """Add the missing entries to torchgen's lists, in this process."""
    FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend(lists.without_out)
    VIEW_FUNCTIONS.update(lists.views)
    ALL_VIEW_FUNCTIONS.update(lists.views)
    RETURNS_VIEWS_OF_INPUT.update(lists.views)
    GRADIENT_IMPLEMENTED_FOR_COMPLEX.update(lists.for_complex)


def texts(lists: Lists) -> dict[str, str]:
    """Return the text to append to each of torchgen's files, so that every process has the entries."""
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
    """Return whether an entry is composed of other operators. A key of ``dispatch`` may name several dispatch keys."""
    names = [name.strip() for keys in entry.get("dispatch") or {} for name in str(keys).split(",")]
    return not names or "CompositeImplicitAutograd" in names


def viewed_argument(schema: FunctionSchema) -> str | None:
    """Return the argument that the result is a view of, from the alias annotations: ``Tensor(a) self -> Tensor(a)``."""
    for result in schema.returns:
        annotation = result.annotation
        if annotation is None or annotation.is_write:
            continue
        for argument in schema.arguments.flat_all:
            theirs = argument.annotation
            if theirs is not None and not theirs.is_write and set(theirs.alias_set) & set(annotation.alias_set):
                return argument.name
    return None
