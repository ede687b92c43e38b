"""Check how many arguments the calls in formulas have, before a compiler does, which names generated code instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tree_sitter import Node

from ..codegen.torchgen import CppSignatureGroup, NativeFunction, Variant, native_function_manager
from ..cpp.syntax import nodes_of, text_of
from .surroundings import Surroundings, is_of_libc

# What follows an operator's name in the names of its C++ functions.
_SUFFIXES = ("", "_symint", "_out", "_outf", "_out_symint", "_symint_outf", "_symint_out", "_outf_symint")


def wrong_calls(formula: Node, tensors: Collection[str], around: Surroundings) -> Iterator[tuple[str, str, str]]:
    """Yield the calls of operators in a formula whose number of arguments no overload takes.

    Args:
        formula: the formula's syntax tree.
        tensors: the variables that are tensors, whose methods are operators.
        around: the operators.

    Yields:
        The name that is called, what is wrong, and a remedy.
    """
    for call in nodes_of(formula):
        given = call.child_by_field_name("arguments") if call.type == "call_expression" else None
        if given is None or "<" in text_of(given) or "..." in text_of(given):  # it may be a template, or any number
            continue
        name, is_method = _called(call.child_by_field_name("function"), tensors, around)
        number = sum(each.type != "comment" for each in given.named_children)
        overloads = _overloads(name, around, is_method=is_method) if name else []
        if not overloads or any(least <= number <= most for least, most, _ in overloads):
            continue
        if name not in around.base.written_functions:
            least, most = min(each[0] for each in overloads), max(each[1] for each in overloads)
            takes = str(least) if least == most else f"{least} to {most}"
            kind = "method" if is_method else "function"
            what = f"`{name}` gets {number} argument{'s' * (number != 1)}, and the {kind} takes {takes}"
            schemas = dict.fromkeys(schema for *_, schema in overloads)
            yield name, what, f"give the arguments of its schema: {', or '.join([*schemas][:3])}"


def _called(function: Node | None, tensors: Collection[str], around: Surroundings) -> tuple[str, bool]:
    """Return the name of the operator that an expression calls, and whether it is a method; empty for other calls."""
    if function is None:
        return "", False
    if function.type == "field_expression":
        is_tensor = _is_tensor(function.child_by_field_name("argument"), tensors, around)
        return (text_of(function.child_by_field_name("field")) if is_tensor else ""), True
    name = text_of(function).removeprefix("at::")
    return (name if name.isidentifier() and name not in around.helpers and not is_of_libc(name) else ""), False


def _is_tensor(node: Node | None, tensors: Collection[str], around: Surroundings) -> bool:
    """Return whether an expression is a variable that is a tensor, or the call of an operator that returns one."""
    if node is None or node.type != "call_expression":
        return text_of(node) in tensors
    name, _ = _called(node.child_by_field_name("function"), tensors, around)
    results = [[str(each.type) for each in f.func.returns] for f in _functions(name, around)]
    return bool(results) and all(each == ["Tensor"] for each in results)


def _overloads(name: str, around: Surroundings, *, is_method: bool) -> list[tuple[int, int, str]]:
    """Return the fewest and the most arguments of each C++ function or method of this name, and its schema; empty if
    there may be others.
    """
    found = []
    for f in _functions(name, around):
        if f.manual_cpp_binding or (is_method and Variant.method not in f.variants):
            continue
        with native_function_manager(f):
            signatures = [*CppSignatureGroup.from_native_function(f, method=is_method).signatures()]
            for each in signatures:
                arguments = [*each.arguments()]
                least = sum(argument.default is None for argument in arguments)
                found += [(least, len(arguments), str(f.func))] if each.name() == name else []
    return found


def _functions(name: str, around: Surroundings) -> list[NativeFunction]:
    """Return the operators with a C++ function that may have this name; none if the folder's are not all known."""
    roots = {name.removesuffix(suffix) for suffix in _SUFFIXES}
    own = [f for root in roots for f in around.own.get(root, [])]
    # Out variants have other names in C++.
    all_count = "_out" in name
    generated = {made.name for f in own for made in f.native.autogen if all_count or made.overload_name[-3:] != "out"}
    if roots & {*around.invalid, *map(str, generated)}:
        return []
    return [*(f.native for f in own), *(f for root in roots for f in around.base.functions_named(root))]
