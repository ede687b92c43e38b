"""What a generated C++ file declares outside functions, as tree-sitter parses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_cpp.language()))

# The grammar knows no macros: it would take these for types, or for statements without an end.
_MACRO = re.compile(
    rb"\b(?:(?:TORCH|C10|AT)_(?:\w+_)?(?:API|EXPORT|INLINE|UNUSED)\b|(?:END_)?HANDLE_TH_ERRORS\b|"
    rb'C10_DEPRECATED_MESSAGE\(".*"\))'
)
# Classes of autograd have a head for Windows and one for others, but one end. The grammar gets to see the second head.
_WINDOWS = re.compile(rb"^(#ifdef _WIN32\n(?:(?!#).*\n)*#else\n)((?:(?!#).*\n)*)(#endif\n)", re.M)

_CONDITIONS = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef")
_CLASSES = ("class_specifier", "struct_specifier")


@dataclass(frozen=True)
class Declaration:
    """A declaration, a definition or a preprocessor line.

    Args:
        node: of the grammar.
        text: without comments and in one line; of a class whose members follow, what stands before the brace.
        scope: the heads of the namespaces and classes that it is in.
        is_member: whether the last of these is a class.
    """

    node: Node
    text: str
    scope: tuple[str, ...]
    is_member: bool


class Declarations:
    """A C++ file.

    Args:
        text: what is in it.
        members: whether the members of classes are declarations of their own.
    """

    def __init__(self, text: str, *, members: bool) -> None:
        self._code = text.encode()
        self._members = members

    def __iter__(self) -> Iterator[Declaration]:
        """What stands outside functions, in its order."""
        seen = _WINDOWS.sub(lambda match: _blank(match[1]) + match[2] + _blank(match[3]), self._code)
        seen = _MACRO.sub(lambda match: _blank(match[0]), seen)
        return self._within(_PARSER.parse(seen).root_node.children, 0)

    def text(self, node: Node, start: int, end: int) -> str:
        """The text from ``start`` to ``end`` without the comments of ``node``, in one line."""
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
            # What the grammar did not get to see before a declaration belongs to it.
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
                if node.next_sibling is not None and node.next_sibling.type == ";":  # behind a class
                    end = node.next_sibling.end_byte
                if (text := self.text(node, start, end)) not in ("", ";"):
                    yield Declaration(node, text, scope, is_member)


def _members_of(node: Node) -> Node | None:
    """The body of the class that ``node`` defines, unless it also declares an object of it."""
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
