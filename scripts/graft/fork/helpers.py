"""Merge native folders' functions for formulas into FunctionsManual.cpp and its header in PyTorch's tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from ..inputs.cplusplus import identifiers, parse, read_text, text_of
from ..inputs.helpers import NAMESPACE

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*\n", re.M)


@dataclass(frozen=True)
class Statement:
    """A statement at the level of the namespace.

    Args:
        text: its text, with the comment before it.
        start: its first byte in the file.
        end: the byte after it.
        key: identifies the function that it defines; empty for other statements.
        names: the names that it declares.
        is_local: whether only this file sees it.
        is_inner: whether it is in a namespace without name.
    """

    text: str
    start: int
    end: int
    key: tuple[str, ...]
    names: frozenset[str]
    is_local: bool
    is_inner: bool = False

    @property
    def code(self) -> str:
        """Its text without comments and spaces."""
        return code_of(self.text)

    @property
    def words(self) -> set[str]:
        """The names in it."""
        return set(re.findall(r"\w+", self.text))


def statements(text: str) -> list[Statement]:
    """Return a source's statements in PyTorch's namespace for functions of formulas."""
    data, found = text.encode(), []
    for node, is_inner in _statements(parse(text), "", is_inner=False):
        start = node.start_byte
        comment = node.prev_sibling
        while comment is not None and comment.type == "comment" and not data[comment.end_byte : start].strip():
            start, comment = comment.start_byte, comment.prev_sibling
        own = data[start : node.end_byte].decode(errors="replace")
        source = read_text(Path(), own)
        functions = source.definitions or source.declarations
        is_instance = node.type == "template_instantiation"
        names = frozenset(each.name for each in functions if not is_instance) or _declared(node)
        is_local = is_inner or not functions or functions[0].is_local
        key = functions[0].key if source.definitions else ()
        found.append(Statement(own, start, node.end_byte, key, names, is_local, is_inner))
    return found


def _statements(node: Node, namespace: str, *, is_inner: bool) -> Iterator[tuple[Node, bool]]:
    for child in node.named_children:
        if child.type == "namespace_definition":
            name, body = text_of(child.child_by_field_name("name")), child.child_by_field_name("body")
            inside = "::".join(filter(None, (namespace, name)))
            if body is not None:
                yield from _statements(body, inside, is_inner=is_inner or not name)
        elif namespace == NAMESPACE and child.type != "comment":
            yield child, is_inner


def _declared(node: Node) -> frozenset[str]:
    """Return the name of the constant, type, alias or template that a statement declares or instantiates."""
    if node.type == "template_instantiation":
        return frozenset(re.findall(r"(\w+)\s*(?:<[^()]*>)?\s*\(", text_of(node))[:1])
    first = text_of(node).partition("=")[0].partition("{")[0]
    words = [text_of(each) for each in identifiers(parse(f"{first};"))]
    return frozenset(words[-1:])


def with_functions(theirs: str, ours: Iterable[str]) -> str:
    """Replace functions of PyTorch's source by those of folders' sources. Return the text.

    Other statements of a folder come before the first function that it replaces, unless PyTorch's source has them, too.
    """
    for text in ours:
        there = {each.key: each for each in statements(theirs) if each.key}
        codes = {each.code for each in statements(theirs)}
        new = [each for each in statements(text) if each.code not in codes]
        replacing = [each for each in new if each.key in there]
        more = [each for each in new if each.key not in there]
        data = theirs.encode()
        first = min((there[each.key].start for each in replacing), default=data.rindex(b"\n} // namespace") + 1)
        parts = [(there[each.key].start, there[each.key].end, each.text) for each in replacing]
        parts.append((first, first, _written(more)))
        for start, end, part in sorted(parts, key=lambda each: each[:2], reverse=True):
            data = data[:start] + part.encode() + data[end:]
        theirs = _including(data.decode(), text)
    return theirs


def with_declarations(theirs: str, ours: Iterable[str]) -> str:
    """Replace declarations of PyTorch's header by those of the same names in folders' headers. Return the text."""
    for text in ours:
        new = statements(text)
        names = {name for each in new for name in each.names}
        data = theirs.encode()
        end = data.rindex(b"} // namespace")
        data = data[:end] + _written(new).encode() + data[end:]
        for each in reversed(statements(theirs)):
            if each.names & names:
                data = data[: each.start] + data[each.end :]
        theirs = _including(data.decode(), text)
    return theirs


def code_of(text: str) -> str:
    """Return C++ without comments and spaces."""
    return re.sub(r"//[^\n]*|/\*.*?\*/|\s+", "", text, flags=re.S)


def _written(chosen: Iterable[Statement]) -> str:
    return "".join(
        f"namespace {{\n\n{each.text}\n\n}} // namespace\n\n" if each.is_inner else f"{each.text}\n\n"
        for each in chosen
    )


def _including(text: str, ours: str) -> str:
    """Add the includes of ``ours`` that a text lacks, after its own. Return the text."""
    theirs = [*_INCLUDE.finditer(text)]
    has = {"".join(each[0].split()) for each in theirs}
    new = [
        each for each in _INCLUDE.findall(ours) if "".join(each.split()) not in has and "FunctionsManual" not in each
    ]
    end = theirs[-1].end() if theirs else 0
    return text[:end] + "".join(new) + text[end:]
