"""Derive docstrings of new operators from their schemas. The native folder's text is added later."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchgen.api.python import PythonSignatureGroup

from .added_operators import names_of_base
from .bindings import named_returns
from .operators import Operators
from .places import Place
from .pyi import function_hint, new_signature_groups


@dataclass(frozen=True)
class Bound:
    """A name that new operators are bound to, with all its overloads.

    Args:
        place: the class or module of ``torch._C``.
        name: its name there.
        public: the public name: ``torch.fft.x`` if ``name`` is ``fft_x``.
        groups: its Python signatures.
    """

    place: Place
    name: str
    public: str
    groups: Sequence[PythonSignatureGroup]

    @property
    def short(self) -> str:
        """The last part of the public name."""
        return self.public.rpartition(".")[2]


def bound_names(operators: Operators, place: Place) -> list[Bound]:
    """Return the names at ``place`` that the base does not have. Existing names keep their documentation."""
    old = names_of_base(operators, place)
    groups: dict[str, list[PythonSignatureGroup]] = {}
    for group in new_signature_groups(operators, place):
        groups.setdefault(group.signature.name, []).append(group)
    found = []
    for name, overloads in sorted(groups.items()):
        prefix = "torch.Tensor" if place.is_method else "torch"
        public = f"{prefix}.{place.public_name(name)}"
        if name not in old and not name.startswith("__"):
            found.append(Bound(place, name, public, overloads))
    return found


def signature_lines(bound: Bound) -> str:
    """Return the first lines of the docstring of ``bound``, one for each overload."""
    return "\n".join(dict.fromkeys(signature_line(bound, group) for group in bound.groups))


def reference(bound: Bound, functions: Mapping[str, Bound], methods: Mapping[str, Bound]) -> str:
    """Return the rest of the docstring if it refers to another name; else an empty string."""
    root = bound.name.removesuffix("_")
    if bound.place.is_method and bound.name in functions:
        return f"See :func:`{functions[bound.name].public}`"
    if root != bound.name and root in methods and bound.place.is_method:
        return f"In-place version of :meth:`~Tensor.{root}`"
    if root != bound.name and root in functions:
        return f"In-place version of :func:`{functions[root].public}`"
    return ""


def derived_body(
    group: PythonSignatureGroup, summary: str = "An operator that was added to this build of PyTorch.", todo: str = ""
) -> str:
    """Describe an operator from its schema. ``todo`` is written where the schema does not describe an argument."""
    arguments = _arguments(group)
    positional = [
        _describe(*each, todo) for each in zip(*_with_defaults(arguments.args, arguments.defaults), strict=True)
    ]
    keyword = [_describe(*each, todo) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    parts = [summary]
    if positional:
        parts.append("Args:\n" + "\n".join(positional))
    if keyword:
        parts.append("Keyword args:\n" + "\n".join(keyword))
    return "\n\n".join(parts)


def _describe(argument: ast.arg, default: ast.expr | None, todo: str) -> str:
    kind = _type_text(argument.annotation) if argument.annotation else "object"
    if argument.arg == "out":
        return f"    out ({kind.removesuffix(' or None')}, optional): the output."
    if default is not None:
        kind = f"{kind.removesuffix(' or None')}, optional"
    is_said = default is not None and not (isinstance(default, ast.Constant) and default.value is None)
    said = [text for text in (todo, f"Default: ``{ast.unparse(default)}``." if default and is_said else "") if text]
    return f"    {argument.arg} ({kind}){': ' if said else ''}{' '.join(said)}"


def signature_line(bound: Bound, group: PythonSignatureGroup) -> str:
    """Return the first line of a docstring: ``lerp(input, end, weight, *, out=None) -> Tensor``."""
    arguments = _arguments(group)
    words = [_word(*each) for each in zip(*_with_defaults(arguments.args, arguments.defaults), strict=True)]
    keyword = [_word(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    separator = ["*"] if keyword else []
    return f"{bound.short}({', '.join([*words, *separator, *keyword])}) -> {_returns_text(group)}"


def _word(argument: ast.arg, default: ast.expr | None) -> str:
    return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"


def _definition(group: PythonSignatureGroup) -> ast.FunctionDef:
    (definition,) = ast.parse(function_hint(group)).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _arguments(group: PythonSignatureGroup) -> ast.arguments:
    """Return the arguments of the stub's definition, without the ``self`` of a method."""
    arguments = _definition(group).args
    if group.signature.method:
        del arguments.args[0]
    return arguments


def _with_defaults(
    arguments: list[ast.arg], defaults: Sequence[ast.expr]
) -> tuple[list[ast.arg], list[ast.expr | None]]:
    return arguments, [*([None] * (len(arguments) - len(defaults))), *defaults]


def _type_text(node: ast.expr) -> str:
    """Convert a type to the form of PyTorch's docstrings: ``_int | None`` becomes ``int or None``, and
    ``Number | _complex`` becomes ``Number``.
    """
    text = re.sub(r"\b_(?=[a-z])", "", ast.unparse(node))
    return text.replace(" | ", " or ").replace("Number or complex", "Number")


def _returns_text(group: PythonSignatureGroup) -> str:
    """Return the return type: ``Tensor``, ``(Tensor, int)`` or, with names, ``(Tensor low, Tensor high)``."""
    if named_returns(group.base):
        return f"({', '.join(f'{each.type} {each.name}' for each in group.base.func.returns)})"
    node = _definition(group).returns
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return f"({', '.join(map(_type_text, node.slice.elts))})"
    return _type_text(node) if node is not None else "None"
