"""Check that no argument has a name that torchgen's code for its operator already uses.

The compiler would report such a name in generated code, or the code would pass another value. This module parses the
generated code, and finds a variable that is declared twice in a scope, one that hides an argument, and a call or a type
with the name of an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tree_sitter import Node, QueryCursor

from ..codegen.operators import Operators, Selection
from ..codegen.output import Output
from ..codegen.torchgen import ComputeBatchRulePlumbing, NativeFunction
from ..cpp.syntax import identifiers, parse, query, text_of
from ..inputs.entries import Entry
from ..inputs.native import FUNCTIONS, NativeFolders
from . import Findings
from .schemas import place_of_argument, root_of

_NAMES = query("""
    (parameter_declaration declarator: (_) @declared)
    (optional_parameter_declaration declarator: (_) @declared)
    (declaration declarator: (_) @declared)
    (for_range_loop declarator: (_) @declared)
    (field_declaration declarator: (_) @member)
    (field_declaration_list (function_definition declarator: (_) @member))
    (call_expression function: (identifier) @used)
    (type_identifier) @used
""")

_FUNCTIONS = ("function_definition", "lambda_expression")
_SCOPES = ("compound_statement", "for_range_loop", "for_statement", "struct_specifier", *_FUNCTIONS)


def check_generated(natives: NativeFolders, operators: Operators, generated: Output) -> None:
    """Check the names of the new operators' arguments in the code that is ``generated`` for them.

    Raises:
        ValueError: lists each argument with its place.
    """
    findings = Findings()
    for entry, name in used_names(natives, operators, generated):
        what = f"the code that torchgen generates for {entry.operator} already uses `{name}`"
        findings.add("argument-name", place_of_argument(name, entry), what, "give the argument another name")
    if findings.found:
        raise ValueError("\n".join(findings.lines()))


def used_names(natives: NativeFolders, operators: Operators, generated: Output) -> Iterator[tuple[Entry, str]]:
    """Yield the entry of a new operator and an argument's name, for each name that ``generated`` code uses."""
    entries = {entry.operator: entry for entry in natives.entries(FUNCTIONS, replacing=False)}
    by_root = {root_of(entry.operator): entry for entry in entries.values()}  # generated variants have no entry
    for unit in operators.units():
        arguments = {a.name for f in unit.functions for a in f.func.arguments.flat_all}
        for name, context in clashes(_texts_of(unit, generated), arguments):
            for f in _owners(name, context, unit.functions):
                yield entries.get(str(f.func.name)) or by_root[root_of(str(f.func.name))], name


def _texts_of(unit: Selection, generated: Output) -> list[str]:
    """Return the C++ that is generated for the operators of a unit."""
    folder = Path("units", unit.functions[0].root_name)
    names = [name for name in generated.names if name.is_relative_to(folder) and "narrow" not in name.parts]
    plumbing = filter(None, map(ComputeBatchRulePlumbing(), unit.functions))
    return [*(generated.read(name) for name in sorted(names) if name.suffix in (".cpp", ".h")), *plumbing]


def _owners(name: str, context: str, functions: Iterable[NativeFunction]) -> list[NativeFunction]:
    """Return the functions with an argument ``name`` whose code contains ``context``, a C++ function or class."""
    having = [f for f in functions if any(a.name == name for a in f.func.arguments.flat_all)]
    plain = context.replace("_", "").lower()
    named = [f for f in having if f.root_name.replace("_", "").lower() in plain]
    longest = max((len(f.root_name) for f in named), default=0)
    return [f for f in named if len(f.root_name) == longest] or having


def clashes(texts: Iterable[str], arguments: set[str]) -> set[tuple[str, str]]:
    """Return the ``arguments`` whose names generated C++ uses otherwise, each with the function or class that does."""
    trees = [parse(text) for text in texts]
    # Classes are in headers, and their methods in sources.
    captures = [QueryCursor(_NAMES).captures(tree) for tree in trees]
    members: dict[str, set[str]] = defaultdict(set)
    found: set[tuple[str, str]] = set()
    for captured in captures:
        for node in captured.get("member", ()):
            struct = _enclosing(node, ("struct_specifier",))
            (name,), kind = _declared(node) or ("",), text_of(struct and struct.child_by_field_name("name"))
            if struct and name:
                key = f"{kind}#{struct.id}"
                if name in members[key] and not _is_method(node):
                    found.add((name, kind))
                members[key].add(name)
                members[kind] |= set() if _is_method(node) else {name}
    for captured in captures:
        found |= set(_in_functions(captured.get("declared", ()), captured.get("used", ()), members, arguments))
    return {(argument, context) for name, context in found if (argument := _argument(name, arguments))}


def _argument(name: str, arguments: set[str]) -> str:
    """Return the argument that a name equals or begins with: ``self`` for ``self_info``; empty if there is none."""
    return name if name in arguments else max((a for a in arguments if name.startswith(a)), key=len, default="")


def _in_functions(
    declared: Iterable[Node], used: Iterable[Node], members: dict[str, set[str]], arguments: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield the names that clash in functions, each with the name of the function or class."""
    scopes: dict[int, dict[str, Node]] = defaultdict(dict)
    nested: list[tuple[str, Node, Node]] = []
    for node in declared:
        scope = _scope_of(node)
        if scope is None:
            continue
        for name in _declared(node):
            if name in scopes[scope.id] and not _is_of_other_branch(node):
                yield name, _context(node)
            scopes[scope.id].setdefault(name, node)
            if name in arguments:
                nested.append((name, node, scope))

    def hides(name: str, node: Node, around: Iterable[Node]) -> bool:
        """Return whether a scope in ``around`` has a parameter ``name`` that is declared before the node."""
        there = (scopes[scope.id].get(name) for scope in around if scope.id in scopes)
        return any(each is not None and _is_parameter(each) and each.start_byte < node.start_byte for each in there)

    for name, node, scope in nested:
        if hides(name, node, list(_outer_scopes(scope))[1:]) or name in members.get(_struct_of(node), ()):
            yield name, _context(node)
    for node in used:
        name = text_of(node)
        is_qualified = node.parent is not None and node.parent.type == "qualified_identifier"
        listed = _enclosing(node, ("parameter_list",)) if node.type == "type_identifier" else None
        # `op(out)` is parsed as the declaration of a function that takes an `out`.
        if name not in arguments or is_qualified or (listed is not None and _function_of(listed) is None):
            continue
        is_member = node.type == "identifier" and name in members.get(_struct_of(node), ())
        if is_member or hides(name, node, _outer_scopes(_enclosing(node, _SCOPES))):
            yield name, _context(node)


def _enclosing(node: Node | None, kinds: Sequence[str]) -> Node | None:
    while node is not None and (node := node.parent) is not None:
        if node.type in kinds:
            return node
    return None


def _scope_of(declarator: Node) -> Node | None:
    """Return the scope of a declared name: a function's for its parameters and the variables of its body."""
    if _is_parameter(declarator):
        return _function_of(_enclosing(declarator, ("parameter_list",)))
    scope = _enclosing(declarator, _SCOPES)
    around = scope.parent if scope is not None and scope.type == "compound_statement" else None
    return around if around is not None and around.type in _FUNCTIONS else scope


def _is_parameter(declarator: Node) -> bool:
    return declarator.parent is not None and "parameter" in declarator.parent.type


def _function_of(listed: Node | None) -> Node | None:
    """Return the function that a list of parameters defines; None if it is only declared."""
    node = listed and listed.parent
    while node is not None and node.type.endswith("declarator"):
        node = node.parent
    return node if node is not None and node.type in _FUNCTIONS else None


def _outer_scopes(scope: Node | None) -> Iterator[Node]:
    """Yield the scope and those around it whose names it can use. A lambda without captures can use none of them."""
    left = scope
    while left is not None:
        yield left
        captures = left.child_by_field_name("captures")
        if left.type == "function_definition" or (captures is not None and text_of(captures) == "[]"):
            return
        left = _enclosing(left, _SCOPES)


def _declared(declarator: Node) -> tuple[str, ...]:
    """Return the names that a declarator declares."""
    node: Node | None = declarator
    while node is not None and node.type.endswith("declarator"):
        if node.type == "structured_binding_declarator":
            return tuple(map(text_of, identifiers(node)))
        node = node.child_by_field_name("declarator") or next(iter(node.named_children), None)
    return (text_of(node),) if node is not None and node.type in ("identifier", "field_identifier") else ()


def _is_method(declarator: Node) -> bool:
    return declarator.type == "function_declarator" or any(c.type == "function_declarator" for c in declarator.children)


def _is_of_other_branch(node: Node) -> bool:
    return _enclosing(node, ("preproc_else", "preproc_elif")) is not None


def _head(node: Node) -> str:
    function = _enclosing(node, ("function_definition",))
    declarator = function.child_by_field_name("declarator") if function else None
    return text_of(declarator).partition("(")[0] if declarator else ""


def _struct_of(node: Node) -> str:
    """Return the class whose method a node is in; empty for constructors, whose parameters are named like members."""
    struct = _enclosing(node, ("struct_specifier",))
    scope, _, method = _head(node).rpartition("::")
    name = text_of(struct.child_by_field_name("name")) if struct else scope.rpartition("::")[2]
    return "" if name == method else name


def _context(node: Node) -> str:
    return _head(node) or _struct_of(node)
