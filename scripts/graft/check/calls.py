"""Find calls in C++ sources that name a function without its namespace, and the types of their arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from ..cpp.functions import canonical
from ..cpp.syntax import nodes_of, parse, text_of

# The syntax nodes that declare variables.
_DECLARING = ("parameter_declaration", "optional_parameter_declaration", "declaration", "for_range_loop")
_STORAGE = re.compile(r"\b(static|constexpr|thread_local|inline|extern)\b")

# Stands for a type that the source does not show.
UNKNOWN = ""

# Methods of a tensor that return numbers.
_RETURN_NUMBERS = {
    "item",
    "size",
    "dim",
    "numel",
    "stride",
    "sym_size",
    "nbytes",
    "element_size",
    "itemsize",
    "toDouble",
}
# The longest text of a call that messages show.
_LONGEST = 60
# The number of nested expressions that are read to find a type.
_DEEPEST = 8


@dataclass(frozen=True)
class Call:
    """A call of a function by its plain name, which is no local variable.

    Args:
        line: counted from 1.
        name: the function.
        text: the call; its name alone if it is long.
        namespace: where the call is, for example ``at::native``.
        is_in_class: whether it is in a class, or in a function that is defined with its class's or namespace's name.
        arguments: the expressions that are passed.
        variables: the variables of the function around it.
    """

    line: int
    name: str
    text: str
    namespace: str
    is_in_class: bool
    arguments: tuple[Node, ...] = field(repr=False)
    variables: Variables = field(repr=False)

    def type_of(self, position: int) -> str:
        """Return the type of an argument, in the spelling of ``canonical``; UNKNOWN if the source does not show it."""
        return self.variables.type_of(self.arguments[position])


class Variables:
    """The variables of a function and of the lambdas in it.

    Args:
        function: the function; None outside of one.
    """

    def __init__(self, function: Node | None) -> None:
        self._function = function

    def __contains__(self, name: str) -> bool:
        return name in self._declared

    @cached_property
    def _declared(self) -> dict[str, tuple[str, Node | None]]:
        """The type and the value of each variable; unknown for a name that is declared with several types."""
        found: dict[str, tuple[str, Node | None]] = {}
        for name, kind, value in _declarations(self._function) if self._function else ():
            is_other = found.get(name, (kind,))[0] != kind
            found[name] = (UNKNOWN, None) if is_other else (kind, value)
        return found

    def type_of(self, value: Node, depth: int = 0) -> str:
        """Return the type of an expression; UNKNOWN if the source does not show it."""
        if value.type == "identifier":
            kind, given = self._declared.get(text_of(value), (UNKNOWN, None))
            if not re.search(r"\bauto\b", kind):
                return kind
            return self.type_of(given, depth + 1) if given is not None and depth < _DEEPEST else UNKNOWN
        if value.type == "number_literal":
            text = text_of(value)
            return "int" if text.isdigit() else "double" if re.fullmatch(r"\d*\.\d*", text) else UNKNOWN
        if value.type in ("parenthesized_expression", "unary_expression", "binary_expression") and depth < _DEEPEST:
            kinds = (self.type_of(part, depth + 1) for part in value.named_children)
            return next(filter(is_tensor, kinds), UNKNOWN)
        return self._result(value, depth) if value.type == "call_expression" else UNKNOWN

    def _result(self, call: Node, depth: int) -> str:
        """Return the type of a call's result: ``const Tensor&`` for a tensor, or a vector; UNKNOWN for others."""
        called = call.child_by_field_name("function")
        if called is None or depth > _DEEPEST:
            return UNKNOWN
        if called.type == "field_expression":
            of, method = called.child_by_field_name("argument"), called.child_by_field_name("field")
            is_number = method is None or method.type != "field_identifier" or text_of(method) in _RETURN_NUMBERS
            kind = UNKNOWN if is_number or of is None else self.type_of(of, depth + 1)
            return "const Tensor&" if "Tensor" in kind else kind if is_tensor(kind) else UNKNOWN
        if re.match(r"(?:at::)?(?:vec::)?Vec(?:torized<|$|::)", text_of(called)):
            return "Vectorized"
        return "const Tensor&" if re.fullmatch(r"(?:::)?(?:at|torch)::\w+", text_of(called)) else UNKNOWN


def is_tensor(kind: str) -> bool:
    """Return whether a type is a tensor, or a vector of numbers."""
    return "Tensor" in kind or "Vec" in kind


def calls_of(text: str, name: str) -> Iterator[Call]:
    """Yield the calls of functions called ``name`` in a source."""
    known: dict[int, Variables] = {}
    for node in nodes_of(parse(text)):
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        listed = node.child_by_field_name("arguments")
        if called is None or called.type != "identifier" or text_of(called) != name or listed is None:
            continue
        around = [*_around(node)]
        function = next((each for each in reversed(around) if each.type == "function_definition"), None)
        variables = known.setdefault(function.id if function else 0, Variables(function))
        if name not in variables:
            arguments = tuple(each for each in listed.named_children if each.type != "comment")
            shown = " ".join(text_of(node).split())
            shown = shown if len(shown) <= _LONGEST else f"{name}(...)"
            where = "::".join(filter(None, map(_scope, reversed(around))))
            is_in_class = any(each.type == "field_declaration_list" for each in around) or _has_scope(function)
            line = node.start_point[0] + 1
            yield Call(line, name, shown, where, is_in_class, arguments, variables)


def methods_of(text: str) -> set[str]:
    """Return the names of the member functions that a source declares."""
    declared = [node for node in nodes_of(parse(text)) if node.type == "function_declarator"]
    names = [node.child_by_field_name("declarator") for node in declared]
    return {text_of(name) for name in names if name is not None and name.type == "field_identifier"}


def _around(node: Node) -> Iterator[Node]:
    """Yield the nodes around ``node``, from the inside."""
    each = node.parent
    while each is not None:
        yield each
        each = each.parent


def _scope(node: Node) -> str:
    """Return the namespace that a node adds to the names in it."""
    if node.type == "namespace_definition":
        return text_of(node.child_by_field_name("name"))
    return _defined(node).rpartition("::")[0] if node.type == "function_definition" else ""


def _has_scope(function: Node | None) -> bool:
    return function is not None and "::" in _defined(function)


def _defined(function: Node) -> str:
    """Return the name in a function's definition, with its scope as written there."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = next(iter(reversed(declarator.named_children)), None)
    return text_of(declarator.child_by_field_name("declarator")) if declarator is not None else ""


def _declarations(function: Node) -> Iterator[tuple[str, str, Node | None]]:
    """Yield the name, the type and the value of each variable of a function."""
    for node in nodes_of(function):
        if node.type == "lambda_capture_initializer" and node.named_children:
            yield text_of(node.named_children[0]), "auto", node.named_children[-1]
        declarators = node.children_by_field_name("declarator") if node.type in _DECLARING else []
        for each in declarators:
            declarator, value = each, None
            if each.type == "init_declarator":
                declarator, value = each.child_by_field_name("declarator") or each, each.child_by_field_name("value")
            if declarator.type == "structured_binding_declarator":
                yield from ((text_of(name), UNKNOWN, None) for name in declarator.named_children)
                continue
            name = declarator
            while name.type != "identifier" and name.named_children:
                name = name.child_by_field_name("declarator") or name.named_children[-1]
            if not text_of(name):
                continue  # the source is not valid
            before = (node.text or b"")[: declarators[0].start_byte - node.start_byte].decode(errors="replace")
            mark = text_of(declarator).partition(text_of(name))[0]
            kind = _STORAGE.sub("", before.rpartition("(")[2] if node.type == "for_range_loop" else before) + mark
            yield text_of(name), canonical(kind), value
