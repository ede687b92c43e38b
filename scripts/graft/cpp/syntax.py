"""Syntax trees of C++: for expressions. tree-sitter needs no headers, and skips what it does not understand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser, Query

# Macros and keywords before a declaration, which the grammar would parse as its type.
_DECORATION = re.compile(r"\b(TORCH_\w*API|C10_\w*(?:API|EXPORT|INLINE|UNUSED|DEVICE)\w*|__(?:host|device|global)__)\b")

_LANGUAGE = Language(tree_sitter_cpp.language())
_PARSER = Parser(_LANGUAGE)

# The keywords of the grammar that cannot be names.
_KEYWORDS = {
    _LANGUAGE.node_kind_for_id(kind)
    for kind in range(_LANGUAGE.node_kind_count)
    if _LANGUAGE.node_kind_is_visible(kind) and not _LANGUAGE.node_kind_is_named(kind)
} - {"final", "override", "restrict", "defined", "noreturn", "offsetof"}


def is_keyword(name: str) -> bool:
    """Return whether a word is a keyword of C++, so that no variable can have this name."""
    value = [text_of(node) for node in identifiers(parse(f"auto _ = {name};"))]
    return value != ["_", name] or name in _KEYWORDS


def query(patterns: str) -> Query:
    """Return a query for nodes of syntax trees."""
    return Query(_LANGUAGE, patterns)


def parse(text: str) -> Node:
    """Return the syntax tree of ``text``."""
    return _PARSER.parse(_DECORATION.sub(lambda word: " " * len(word[0]), text).encode()).root_node


def nodes_of(node: Node) -> Iterator[Node]:
    """Yield ``node`` and the named nodes within it, in order."""
    left = [node]  # no recursion: expressions may nest more deeply than Python's calls
    while left:
        each = left.pop()
        yield each
        left += reversed(each.named_children)


def identifiers(node: Node) -> Iterator[Node]:
    """Yield the names within ``node``, in order."""
    return (each for each in nodes_of(node) if each.type.endswith("identifier") and not each.named_children)


def text_of(node: Node | None) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode(errors="replace") if node is not None else ""
