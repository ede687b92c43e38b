"""The statements at namespace level of a C++ file, by its tokens.

No header is read and no macro expanded, and many macros of PyTorch have no semicolon behind them, so this splits tokens
and needs no grammar. Where braces do not match, as around some ``#if``, the file is one statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import count
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<directive>^[^\S\n]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
    |(?P<space>[^\S\n]+|\n|//[^\n]*|/\*.*?\*/)
    |(?P<string>(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<other>.)""",
    re.S | re.M | re.X,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\\\n", re.S)
_MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}")
# Macros with arguments that are a part of what follows them.
_PREFIX = re.compile(r"\w*(?:LAUNCH_BOUNDS|ATTRIBUTE|DEPRECATED|ALIGN)\w*")
_DEFINES = re.compile(r"\s*#\s*(?:define|undef)\s+(\w+)")
_TYPES = {"struct", "class", "union", "enum"}
# Words before a parenthesis that are no name of a function.
_NO_NAME = {"decltype", "__attribute__", "alignas", "noexcept", "__launch_bounds__", "declspec", "explicit", "requires"}
_LOCAL = {"static", "inline", "constexpr", "__global__", "__device__"}


class Kind(Enum):
    """What a statement is."""

    FUNCTION = "function"
    # What the loader runs, or what defines a symbol by a macro: of a kernel, a stub, an instance of a template.
    REGISTRATION = "registration"
    TYPE = "type"
    MACRO = "macro"
    INCLUDE = "include"
    DIRECTIVE = "directive"
    OTHER = "other"


class Token(NamedTuple):
    """A token with its place in the text."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Statement:
    """A statement.

    Args:
        kind: what it is.
        names: what it defines or declares.
        tokens: its tokens.
        namespace: the namespaces around it; one without a name is an empty text.
        block: for a statement in the block of a registering macro, the number of the block's statement; else -1.
    """

    kind: Kind
    names: frozenset[str]
    tokens: tuple[Token, ...]
    namespace: tuple[str, ...] = ()
    block: int = -1

    @property
    def start(self) -> int:
        """Where it begins in the text."""
        return self.tokens[0].start

    @property
    def end(self) -> int:
        """Where it ends in the text."""
        return self.tokens[-1].end

    @cached_property
    def code(self) -> tuple[object, ...]:
        """What two statements have in common that mean the same."""
        texts = (_COMMENT.sub(" ", t.text).split() if t.kind == "directive" else [t.text] for t in self.tokens)
        return ("::".join(self.namespace), *(word for text in texts for word in text))

    @cached_property
    def words(self) -> frozenset[str]:
        """The names in it."""
        every: set[str] = {token.text for token in self.tokens if token.kind == "word"}
        for token in self.tokens:
            if token.kind == "directive":
                every.update(re.findall(r"[A-Za-z_]\w*", _COMMENT.sub(" ", token.text)))
        return frozenset(every)

    @property
    def called(self) -> frozenset[str]:
        """The names by which other statements use it. A function of ``TORCH_IMPL_FUNC`` is a member of a class."""
        is_member = self.kind is Kind.FUNCTION and bool(_MACRO.fullmatch(self.tokens[0].text))
        return frozenset() if is_member else self.names

    @property
    def is_local(self) -> bool:
        """Whether only its file sees the function."""
        words = [token.text for token in self.tokens[:12]]
        until = words[: words.index("(")] if "(" in words else words
        return "" in self.namespace or words[0] == "template" or not _LOCAL.isdisjoint(until)


class _UnbalancedError(Exception):
    """Braces do not match."""


def statements(text: str) -> list[Statement]:
    """Return the statements of a text, and those in the blocks of registering macros behind their block."""
    matches = ((each.lastgroup or "", each) for each in _TOKEN.finditer(text))
    found = [Token("string" if kind == "end" else kind, each[0], *each.span()) for kind, each in matches]
    tokens = [token for token in found if token.kind != "space"]
    try:
        return _Splitter(tokens).split()
    except _UnbalancedError:
        every = tuple(token for token in tokens)
        return [Statement(Kind.OTHER, frozenset(), every)] if every else []


class _Splitter:
    """Splits tokens into statements."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._namespaces: list[str | None] = []
        # The macro of the block that the next statements are in.
        self._head: list[str] = []
        self._found: list[Statement] = []

    def split(self) -> list[Statement]:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind == "directive":
                self._directive(token)
            elif token.text == "}":
                if not self._namespaces:
                    raise _UnbalancedError
                self._namespaces.pop()
                self._at += 1
            elif not self._opens_namespace():
                self._statement()
        if self._namespaces:
            raise _UnbalancedError
        return self._found

    def _directive(self, token: Token) -> None:
        name = _DEFINES.match(token.text)
        is_include = re.match(r"\s*#\s*(?:include|pragma\s+once)\b", token.text)
        kind = Kind.MACRO if name else Kind.INCLUDE if is_include else Kind.DIRECTIVE
        self._add(kind, [name[1]] if name else (), self._at, self._at + 1)
        self._at += 1

    def _add(self, kind: Kind, names: Sequence[str], start: int, end: int, block: int = -1) -> None:
        around = (*(name for name in self._namespaces if name is not None), *self._head)
        self._found.append(Statement(kind, frozenset(names), tuple(self._tokens[start:end]), around, block))

    def _text(self, at: int) -> str:
        """Return the text of a token, not of a directive; empty behind the last."""
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _needed(self, at: int) -> str:
        if at >= len(self._tokens):
            raise _UnbalancedError
        return self._tokens[at].text

    def _opens_namespace(self) -> bool:
        at = self._at + (self._text(self._at) == "inline")
        if self._text(at) == "extern" and self._text(at + 1) == '"C"' and self._text(at + 2) == "{":
            self._namespaces.append(None)
            self._at = at + 3
            return True
        if self._text(at) != "namespace":
            return False
        end = next(i for i in count(at) if self._text(i) in ("{", ";", "=", ""))
        if self._text(end) != "{":
            return False
        names = [self._text(i) for i in range(at + 1, end) if self._tokens[i].kind == "word"]
        self._namespaces.append("::".join(names))
        self._at = end + 1
        return True

    def _behind(self, at: int) -> int:
        """Return the place behind the bracket that closes the one at ``at``."""
        depth = 0
        for i in range(at, len(self._tokens)):
            text = self._tokens[i].text
            depth += (text in "([{") - (text in ")]}") if self._tokens[i].kind == "other" else 0
            if depth == 0:
                return i + 1
        raise _UnbalancedError

    def _behind_template(self, at: int) -> int:
        """Return the place behind ``<...>`` at ``at``."""
        depth = 0
        while True:
            text = self._needed(at)
            if text in ("(", "{", "["):
                at = self._behind(at)
                continue
            depth += (text == "<") - (text == ">" and self._tokens[at - 1].text != "-")
            at += 1
            if depth == 0:
                return at

    def _statement(self) -> None:
        start, at = self._at, self._at
        while self._text(at) == "template" and self._text(at + 1) == "<":
            at = self._behind_template(at + 1)
        head = at
        is_type = self._is_type(head)
        has_value = has_parameters = False
        while True:
            text = self._needed(at)
            if text == "operator":
                at = next(i for i in count(at + 1) if self._text(i) in ("(", ""))
                at = self._behind(at) if self._text(at + 1) == ")" else at  # operator()
            elif text in ("(", "["):
                has_parameters |= text == "("
                at = self._behind(at)
                if self._is_macro(head, at):
                    break
            elif text == "{":
                at = self._behind(at)
                if has_parameters and not has_value and not is_type and self._text(at) not in (",", "{", ";"):
                    break
                if has_parameters and not has_value and not is_type and self._text(at) == ";":
                    at += 1
                    break
            elif text == ";":
                at += 1
                break
            elif text == "}":
                raise _UnbalancedError
            else:
                has_value |= text == "="
                at += 1
        self._at = at
        self._classify(start, head, at, is_type=is_type)

    def _is_type(self, at: int) -> bool:
        """Return whether a type is defined or declared here: no variable or function that has one."""
        if self._text(at) in ("typedef", "friend") or self._text(at) not in _TYPES:
            return False
        end = next(i for i in count(at) if self._text(i) in ("{", ";", "(", "=", ""))
        return self._text(end) != "("

    def _is_macro(self, head: int, at: int) -> bool:
        """Return whether the tokens until ``at`` are the use of a macro that is a statement without a semicolon."""
        name = self._text(head)
        if not _MACRO.fullmatch(name) or self._text(head + 1) != "(" or self._behind(head + 1) != at:
            return False
        if _PREFIX.fullmatch(name):
            return False
        following = self._tokens[at] if at < len(self._tokens) else None
        return following is None or following.kind in ("word", "directive") or following.text == "}"

    def _classify(self, start: int, head: int, end: int, *, is_type: bool) -> None:
        first = self._text(head)
        is_macro = bool(_MACRO.fullmatch(first)) and self._text(head + 1) == "(" and not _PREFIX.fullmatch(first)
        has_body = self._text(end - 1) == "}" or (self._text(end - 1) == ";" and self._text(end - 2) == "}")
        if is_type:
            self._add(Kind.TYPE, self._name_of_type(head, end), start, end)
        elif is_macro and first.startswith("TORCH_LIBRARY"):
            self._block(start, end)
        elif is_macro and self._text(self._behind(head + 1)) == "(" and has_body:
            inside = range(head + 2, self._behind(head + 1) - 1)
            name = "_".join(self._text(i) for i in inside if self._tokens[i].kind == "word")
            self._add(Kind.FUNCTION, [name], start, end)
        elif is_macro or (first == "template" and self._text(head + 1) != "<"):
            self._add(Kind.REGISTRATION, (), start, end)
        elif first in ("using", "typedef", "static_assert", "friend"):
            self._add(Kind.OTHER, self._name_of_alias(head, end), start, end)
        else:
            at = self._name(head, end)
            name = self._text(at) if at >= 0 else ""
            is_function = has_body and at >= 0 and not self._has_value(head, end)
            self._add(Kind.FUNCTION if is_function else Kind.OTHER, [name] if name else (), start, end)

    def _has_value(self, head: int, end: int) -> bool:
        at = head
        while at < end:
            text = self._text(at)
            if text == "operator":
                return False
            if text == "=":
                return True
            at = self._behind(at) if text in ("(", "[", "{") else at + 1
        return False

    def _name(self, head: int, end: int) -> int:
        """Return the place of the name of a function or variable; -1 if there is none."""
        at = head
        while at < end:
            text = self._text(at)
            if text == "operator":
                return at
            if text in ("(", "=", "{", ";", "["):
                before = at - 1
                if self._text(before) == ">":  # an instance of a template
                    before = next((i for i in range(before, head, -1) if self._text(i) == "<"), head) - 1
                if text == "(" and (self._text(before) in _NO_NAME or _PREFIX.fullmatch(self._text(before))):
                    at = self._behind(at)
                    continue
                return before if before >= head and self._tokens[before].kind == "word" else -1
            if text == "<" and self._tokens[at - 1].kind == "word":
                with_end = self._behind_template(at)
                at = with_end if with_end <= end else at + 1
                continue
            at += 1
        return -1

    def _name_of_type(self, head: int, end: int) -> list[str]:
        at, name = head + 1, ""
        while at < end and self._text(at) not in ("{", ":", ";", "<", "final"):
            if self._text(at) == "(":
                at = self._behind(at)
                continue
            name = self._text(at) if self._tokens[at].kind == "word" and self._text(at) not in _TYPES else name
            at += 1
        return [name] if name else []

    def _name_of_alias(self, head: int, end: int) -> list[str]:
        words = [self._text(i) for i in range(head + 1, end) if self._tokens[i].kind == "word"]
        if self._text(head) == "using" and self._text(head + 1) != "namespace":
            has_value = self._text(head + 2) == "="
            return words[:1] if has_value else words[-1:]
        return words[-1:] if self._text(head) == "typedef" else []

    def _block(self, start: int, end: int) -> None:
        """Add the block of a macro that registers kernels, and behind it the statements in it."""
        number = len(self._found)
        opening = next((i for i in range(start, end) if self._text(i) == "{"), -1)
        self._add(Kind.REGISTRATION, (), start, end)
        if opening < 0:
            return
        self._head = [self._text(i) for i in range(start, opening)]
        at = first = opening + 1
        last = self._behind(opening) - 1
        while at < last:
            if self._tokens[at].kind == "directive":
                name = _DEFINES.match(self._tokens[at].text)
                self._add(Kind.MACRO if name else Kind.DIRECTIVE, [name[1]] if name else (), at, at + 1, number)
                at = first = at + 1
            elif self._text(at) in ("(", "{", "["):
                at = self._behind(at)
                if self._is_macro(first, at):
                    self._add(Kind.REGISTRATION, (), first, at, number)
                    first = at
            elif self._text(at) == ";":
                at += 1
                self._add(Kind.REGISTRATION, (), first, at, number)
                first = at
            else:
                at += 1
        if first < last:
            self._add(Kind.REGISTRATION, (), first, last, number)

    def _directive_in_block(self, at: int) -> None:
        name = _DEFINES.match(self._tokens[at].text)
        kind = Kind.MACRO if name else Kind.DIRECTIVE
        self._add(kind, [name[1]] if name else (), at, at + 1)
