"""What a generated C++ file declares outside of functions, as parsed by tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_cpp.language()))

# The grammar does not know macros: it would parse these as types, or as incomplete statements.
_MACRO = re.compile(
    rb"\b(?:(?:TORCH|C10|AT)_(?:\w+_)?(?:API|EXPORT|INLINE|UNUSED)\b|(?:END_)?HANDLE_TH_ERRORS\b|"
    rb'C10_DEPRECATED_MESSAGE\(".*"\))'
)
# Autograd's classes have one head for Windows, another for other systems, and one end. The second head is passed to the
# grammar.
_WINDOWS = re.compile(rb"^(#ifdef _WIN32\n(?:(?!#).*\n)*#else\n)((?:(?!#).*\n)*)(#endif\n)", re.M)

_CONDITIONS = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef")
_CLASSES = ("class_specifier", "struct_specifier")


@dataclass(frozen=True)
class Declaration:
    """A declaration, a definition or a preprocessor line.

    Args:
        node: its syntax node.
        text: without comments, in one line; for a class with members, the text before the brace.
        scope: the heads of the enclosing namespaces and classes.
        is_member: whether the innermost of these is a class.
    """

    node: Node
    text: str
    scope: tuple[str, ...]
    is_member: bool


class Declarations:
    """A C++ file.

    Args:
        text: its content.
        members: whether members of classes are separate declarations.
    """

    def __init__(self, text: str, *, members: bool) -> None:
        self._code = text.encode()
        self._members = members

    def __iter__(self) -> Iterator[Declaration]:
        """The declarations outside of functions, in order."""
        seen = _WINDOWS.sub(lambda match: _blank(match[1]) + match[2] + _blank(match[3]), self._code)
        seen = _MACRO.sub(lambda match: _blank(match[0]), seen)
        return self._within(_PARSER.parse(seen).root_node.children, 0)

    def text(self, node: Node, start: int, end: int) -> str:
        """Return the text from ``start`` to ``end`` without the comments of ``node``, in one line."""
        parts = []
        if b"//" in self._code[start:end] or b"/*" in self._code[start:end]:
            for comment in _comments(node):
                parts.append(self._code[start : min(comment.start_byte, end)])
                start = min(comment.end_byte, end)
        return " ".join(b" ".join([*parts, self._code[start:end]]).decode().split())

    def _within(
        self, nodes: Sequence[Node], end: int, scope: tuple[str, ...] = (), is_member: bool = False
    ) -> Iterator[Declaration]:
        for node in nodes:
            # Text that was hidden from the grammar belongs to the declaration after it.
            start, end = end, node.end_byte
            body = node.child_by_field_name("body")
            if node.type in _CONDITIONS:
                named = node.child_by_field_name("condition") or node.child_by_field_name("name") or node.children[0]
                yield Declaration(node, self.text(node, start, named.end_byte), scope, is_member)
                inside = [child for child in node.children if child.start_byte >= named.end_byte]
                yield from self._within(inside, named.end_byte, scope, is_member)
            elif body is not None and body.type == "declaration_list":
                head = self.text(node, start, body.start_byte)
                yield from self._within(body.children, body.start_byte, (*scope, head))
            elif self._members and (members := _members_of(node)):
                head = self.text(node, start, members.start_byte)
                yield Declaration(node, head, scope, is_member)
                yield from self._within(members.children, members.start_byte, (*scope, head), True)
            elif (node.is_named and node.type != "comment") or node.type == "#endif":
                if node.next_sibling is not None and node.next_sibling.type == ";":  # after a class
                    end = node.next_sibling.end_byte
                if (text := self.text(node, start, end)) not in ("", ";"):
                    yield Declaration(node, text, scope, is_member)


def _members_of(node: Node) -> Node | None:
    """Return the body of the class that ``node`` defines, unless ``node`` also declares an object."""
    if node.type in _CLASSES:
        return node.child_by_field_name("body")
    if node.type in ("template_declaration", "field_declaration") and not node.child_by_field_name("declarator"):
        return next(filter(None, map(_members_of, node.named_children)), None)
    return None


def _comments(node: Node) -> Iterator[Node]:
    if node.type == "comment":
        yield node
    for child in node.children:
        yield from _comments(child)


def _blank(code: bytes) -> bytes:
    return re.sub(rb"[^\n]", b" ", code)
