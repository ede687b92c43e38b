"""Decide whether a header only gained declarations, so that objects compiled with the old text remain valid."""

from __future__ import annotations

import re

from tree_sitter import Node

from .declarations import Declaration, Declarations

# Declarations that can be added to a namespace.
_HARMLESS = frozenset(
    {
        "alias_declaration",
        "class_specifier",
        "declaration",
        "enum_specifier",
        "function_definition",
        "struct_specifier",
        "template_declaration",
    }
)
_LAYOUT = re.compile(r"\bvirtual\b|\boverride\b|\bfinal\b|= 0;$")
_INDIRECT = ("reference_declarator", "pointer_declarator")


def only_gains(old: str, new: str) -> bool:
    """Return whether ``new`` is ``old`` plus declarations that change no existing layout, number or macro.

    These are includes; functions, classes and variables of a namespace; and non-virtual functions of a class. Text that
    the grammar does not understand counts as a change.
    """
    before = [(each.scope, each.text) for each in Declarations(old, members=True)]
    classes = {(*scope, text) for scope, text in before}
    at = 0
    for each in Declarations(new, members=True):
        if at < len(before) and (each.scope, each.text) == before[at]:
            at += 1
        elif not is_harmless(each, in_old_class=each.is_member and each.scope in classes):
            return False
    return at == len(before)


def is_harmless(added: Declaration, *, in_old_class: bool) -> bool:
    """Return whether this declaration may be added. Fewer may be added to an existing class."""
    node = added.node
    if node.type.startswith("preproc") or node.type == "#endif":
        return node.type == "preproc_include"
    if in_old_class:
        return declares_function(node) and not _LAYOUT.search(added.text)
    return added.is_member or node.type in _HARMLESS


def declares_function(node: Node) -> bool:
    """Return whether a member is a function or a function template.

    A destructor may not be added: it changes how objects are passed.
    """
    if node.type == "template_declaration":
        return declares_function(node.named_children[-1])
    if node.type not in ("declaration", "field_declaration", "function_definition"):
        return False
    declared = node.children_by_field_name("declarator")
    return bool(declared) and all(map(_is_function, declared))


def _is_function(declarator: Node) -> bool:
    while declarator.type in _INDIRECT:
        declarator = declarator.named_children[-1]
    name = declarator.child_by_field_name("declarator")
    # For a pointer to a function, the name is in parentheses.
    is_plain = name is not None and name.type not in ("parenthesized_declarator", "destructor_name")
    return declarator.type == "operator_cast" or (declarator.type == "function_declarator" and is_plain)
