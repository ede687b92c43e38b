"""Split a C++ file into its statements at namespace level, by tokens.

No header is read, and many uses of PyTorch's macros have no semicolon, so this splits tokens and needs no grammar.
Uses of macros that the file defines are expanded once, to find the functions that they define. Of the branches of an
``#if`` inside brackets, the last one counts. If braces do not match, the file is one statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import accumulate, count

from .tokens import branch, conditions, is_directive, tokens, without_comments, words

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
ANGLES = {"<": 1, ">": -1}
_MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}")
# Macros with arguments that belong to the declaration after them.
_PREFIX = re.compile(r"\w*(?:LAUNCH_BOUNDS|ATTRIBUTE|DEPRECATED|ALIGN)\w*")
_DEFINES = re.compile(r"\s*#\s*(?:define|undef)\s+(\w+)")
_FUNCTION_MACRO = re.compile(r"\s*#\s*define\s+\w+\(([^)]*)\)(.*)", re.S)
_TYPES = {"struct", "class", "union", "enum"}
# Words before a parenthesis that are not the name of a function.
_NO_NAME = {
    "decltype",
    "__attribute__",
    "alignas",
    "__align__",
    "noexcept",
    "__launch_bounds__",
    "declspec",
    "explicit",
    "requires",
}
# The comments directly above a place.
_COMMENTS = re.compile(r"(?:[ \t]*//[^\n]*\n)+[ \t]*\Z")
_LOCAL = {"static", "inline", "constexpr", "__global__", "__device__"}


class Kind(Enum):
    """The kind of a statement."""

    FUNCTION = "function"
    # Code that runs when a library is loaded; or a definition of a kernel, stub or template instance by a macro.
    REGISTRATION = "registration"
    TYPE = "type"
    MACRO = "macro"
    INCLUDE = "include"
    DIRECTIVE = "directive"
    OTHER = "other"
    # A file whose braces do not match.
    WHOLE = "whole"


@dataclass(frozen=True)
class Statement:
    """A statement.

    Args:
        kind: its kind.
        names: the names that it defines or declares.
        tokens: its tokens.
        start: where it begins in the text.
        end: where it ends there.
        namespace: the namespaces around it; an empty string for one without a name.
        head: the index of its first token after ``template <...>``.
        name: the index of the name that it defines or declares, or of the macro that does; -1 if there is none.
        block: for a statement in a block such as TORCH_LIBRARY's, the index of the block's own statement; else -1.
        expansion: for the use of a macro that the file defines, the statements that it stands for.
    """

    kind: Kind
    names: frozenset[str]
    tokens: tuple[str, ...]
    start: int
    end: int
    namespace: tuple[str, ...] = ()
    head: int = 0
    name: int = -1
    block: int = -1
    expansion: tuple[Statement, ...] = ()

    @cached_property
    def code(self) -> tuple[str, ...]:
        """Its namespaces and tokens, which are equal for statements that differ only in spaces and comments."""
        return "::".join(self.namespace), *words(self.tokens)

    @cached_property
    def words(self) -> frozenset[str]:
        """The names in it; none in the path of an include."""
        if self.kind is Kind.INCLUDE:
            return frozenset()
        own = (word for word in words(self.tokens) if word.isidentifier())
        return frozenset(own).union(*(each.words for each in self.expansion))

    @property
    def called(self) -> frozenset[str]:
        """The names by which other statements use it; none for a function of ``TORCH_IMPL_FUNC``, a class member."""
        if self.expansion:
            return frozenset().union(*(each.called for each in self.expansion))
        is_macro = bool(_MACRO.fullmatch(self.tokens[0])) and self.tokens[1:2] == ("(",)
        is_member = self.kind is Kind.FUNCTION and is_macro
        return frozenset() if is_member else self.names

    @property
    def before_body(self) -> tuple[str, ...]:
        """The tokens before the first brace."""
        return self.tokens[: self.tokens.index("{")] if "{" in self.tokens else self.tokens

    @property
    def has_body(self) -> bool:
        """Whether it ends with braces."""
        return "}" in self.tokens[-2:]

    @property
    def members(self) -> list[Statement]:
        """The statements in the braces of a type; none if brackets in them do not match."""
        body = self.tokens[len(self.before_body) + 1 : -2]
        try:
            return _Splitter(body, range(len(body))).split()
        except _UnbalancedError:
            return []

    @property
    def is_local(self) -> bool:
        """Whether only its own file can use the function."""
        first = self.tokens[:12]
        until = first[: first.index("(")] if "(" in first else first
        return "" in self.namespace or first[0] == "template" or not _LOCAL.isdisjoint(until)


class _UnbalancedError(Exception):
    """Braces do not match."""


def statements(text: str, *, is_strict: bool = True) -> list[Statement]:
    """Return the statements of a text. Those in the block of a registering macro follow the block's own statement.

    Args:
        text: the text of a file.
        is_strict: whether a file whose braces do not match is one statement. If not, those that can be told are
            returned: a macro may open a namespace, and a user may be writing.
    """
    every, ends = tokens(text)
    splitter = _Splitter(every, ends, is_strict=is_strict)
    try:
        return _expanded(splitter.split())
    except _UnbalancedError:
        if not is_strict:
            return _expanded(splitter.found)
        names = frozenset(each for each in every if each.isidentifier())
        return [Statement(Kind.WHOLE, names, tuple(every), 0, len(text))] if every else []


def start_with_comment(text: str, statement: Statement, after: int = 0) -> int:
    """Return where a statement of a text begins, with the comments directly above it that are behind ``after``."""
    above = _COMMENTS.search(text, after, statement.start)
    return above.start() if above else statement.start


def _expanded(every: list[Statement]) -> list[Statement]:
    """Return statements, with expansions for uses of macros that the file defines."""
    macros = {name: each for each in every if each.kind is Kind.MACRO for name in each.names}
    return [
        _with_expansion(each, macros[each.tokens[0]])
        if each.kind is Kind.REGISTRATION and each.block < 0 and each.tokens[0] in macros
        else each
        for each in every
    ]


def _with_expansion(use: Statement, macro: Statement) -> Statement:
    """Return the use of a macro with its expansion."""
    found = _FUNCTION_MACRO.match(without_comments(macro.tokens[0]).replace("\\\n", " "))
    if not found:
        return use
    given = dict(zip(found[1].replace(" ", "").split(","), map(" ".join, arguments(use.tokens, 1)[0]), strict=False))
    body = re.sub(r"\w+", lambda word: given.get(word[0], word[0]), found[2])
    inner = tuple(statements(re.sub(r"\s*##\s*", "", body)))
    functions = [each for each in inner if each.kind is Kind.FUNCTION]
    kind = Kind.FUNCTION if functions and len(functions) == len(inner) else use.kind
    return replace(use, kind=kind, names=frozenset().union(*(each.names for each in functions)), expansion=inner)


def arguments(every: Sequence[str], at: int = 0, *, of_types: bool = False) -> tuple[list[list[str]], int]:
    """Return the tokens of each argument in the brackets at an index of tokens, and the index behind the brackets.
    ``<`` is a bracket in types.
    """
    found, depth, brackets = [list[str]()], 0, BRACKETS | ANGLES if of_types else BRACKETS
    for i in range(at, len(every)):
        depth += brackets.get(every[i], 0)
        if depth == 0:
            return found if found != [[]] else [], i + 1
        if every[i] == "," and depth == 1:
            found.append([])
        elif i > at and not is_directive(every[i]):
            found[-1].append(every[i])
    return found if found != [[]] else [], len(every)


class _Splitter:
    """Splits tokens into statements."""

    def __init__(self, tokens: Sequence[str], ends: Sequence[int], *, is_strict: bool = True) -> None:
        self._tokens = tokens
        self._ends = ends
        self._conditions = conditions(tokens)
        self._at = 0
        self._namespaces: list[str | None] = []
        # The open namespaces at each ``#if``.
        self._before: dict[int, list[str | None]] = {}
        # The macro of the block that the next statements are in.
        self._head: list[str] = []
        self.found: list[Statement] = []
        self._is_strict = is_strict

    def split(self) -> list[Statement]:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if "#" in token and is_directive(token):
                self._directive(token)
            elif token == "}":
                if self._is_strict and not self._namespaces:
                    raise _UnbalancedError
                del self._namespaces[-1:]
                self._at += 1
            elif not self._opens_namespace():
                try:
                    self._statement()
                except _UnbalancedError:
                    if self._is_strict:
                        raise
                    self._skip()
        if self._namespaces:
            raise _UnbalancedError
        return self.found

    def _skip(self) -> None:
        """Go behind a statement that cannot be told."""
        end = next((i for i in range(self._at, len(self._tokens)) if self._tokens[i] in ("{", ";")), len(self._tokens))
        self._at = end + 1 if self._needed(end) == ";" else self._behind(end)

    def _directive(self, token: str) -> None:
        self._note_condition(self._at)
        if branch(token) == "el" and (around := self._conditions[self._at]):
            # Each branch may open a namespace that one brace closes.
            self._namespaces = [*self._before.get(around[-1][0], self._namespaces)]
        name = _DEFINES.match(token)
        is_include = re.match(r"\s*#\s*(?:include|pragma\s+once)\b", token)
        kind = Kind.MACRO if name else Kind.INCLUDE if is_include else Kind.DIRECTIVE
        self._add(kind, [name[1]] if name else (), self._at, self._at + 1)
        self._at += 1

    def _note_condition(self, at: int) -> None:
        if "#" in self._tokens[at] and branch(self._tokens[at]) == "if":
            self._before[at] = [*self._namespaces]

    def _add(
        self, kind: Kind, names: Sequence[str], start: int, end: int, head: int = 0, name: int = -1, block: int = -1
    ) -> None:
        around = (*(name for name in self._namespaces if name is not None), *self._head)
        tokens = tuple(self._tokens[start:end])
        first, last = self._ends[start] - len(tokens[0]), self._ends[end - 1]
        if kind is Kind.FUNCTION and self._conditions[start] != self._conditions[end]:
            kind = Kind.OTHER  # a branch of an ``#if`` has only a part of it, so it cannot be left out
        head, name = max(head - start, 0), max(name - start, -1)
        self.found.append(Statement(kind, frozenset(names), tokens, first, last, around, head, name, block))

    def _text(self, at: int) -> str:
        """Return the token at an index; empty after the last one."""
        return self._tokens[at] if at < len(self._tokens) else ""

    def _needed(self, at: int) -> str:
        if at >= len(self._tokens):
            raise _UnbalancedError
        return self._tokens[at]

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
        names = [self._text(i) for i in range(at + 1, end) if self._tokens[i].isidentifier()]
        self._namespaces.append("::".join(names))
        self._at = end + 1
        return True

    def _behind(self, at: int) -> int:
        """Return the index after the bracket that closes the one at ``at``."""
        depth = 0
        depths: dict[int, int] = {}  # at each ``#if`` from here
        until = at
        for i in range(at, len(self._tokens)):
            token = self._tokens[i]
            if "#" in token and (kind := branch(token)):
                around = self._conditions[i]
                if kind == "if":
                    depths[i] = depth
                elif kind == "el" and around:
                    depth = depths.get(around[-1][0], depth)
                    if around[-1][0] not in depths:  # other branches open the same bracket
                        until = self._endif(i)
            if i >= until:
                depth += BRACKETS.get(token, 0)
            if depth == 0:
                return i + 1
        raise _UnbalancedError

    def _endif(self, at: int) -> int:
        """Return the index of the ``#endif`` of the condition that the directive at ``at`` belongs to."""
        depth = len(self._conditions[at])
        for i in range(at, len(self._tokens)):
            if len(self._conditions[i + 1]) < depth:
                return i
        raise _UnbalancedError

    def _behind_template(self, at: int) -> int:
        """Return the index after ``<...>`` at ``at``."""
        depth, start = 0, at
        while True:
            if at >= len(self._tokens) and not self._is_strict:
                return self._behind_less(start)
            text = self._needed(at)
            if text in ("(", "{", "["):
                at = self._behind(at)
                continue
            depth += ANGLES.get(text, 0)
            at += 1
            if depth == 0:
                return at

    def _behind_less(self, at: int) -> int:
        """Return the index after ``<...>`` at ``at``, in which a ``<`` is "less than": after the last ``>`` before the
        statement's end or body.
        """
        last = -1
        while (text := self._needed(at)) not in ("{", ";"):
            last = at if text in (">", ">>") else last
            at = self._behind(at) if text in ("(", "[") else at + 1
        if last < 0:
            raise _UnbalancedError
        return last + 1

    def _statement(self) -> None:
        start, at = self._at, self._at
        while self._text(at) == "template" and self._text(at + 1) == "<":
            at = self._behind_template(at + 1)
        while self._text(at) == self._text(at + 1) == "[":  # an attribute
            at = self._behind(at)
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
            elif text == "}" and has_parameters and self._behind(head + 1) == at:
                break  # a macro without a semicolon ends the namespace
            elif text == "}":
                raise _UnbalancedError
            else:
                has_value |= text == "="
                at += 1
        self._at = at
        for i in range(start, at):
            self._note_condition(i)
        self._classify(start, head, at, is_type=is_type)

    def _is_type(self, at: int) -> bool:
        """Return whether a type is defined or declared at ``at``, and not a variable or function of such a type."""
        if self._text(at) in ("typedef", "friend") or self._text(at) not in _TYPES:
            return False
        while self._text(at) not in ("{", ";", "(", "=", ":", ""):
            is_template = self._text(at) == "<"
            at = self._behind_template(at) if is_template else at + 1
        return self._text(at) != "("

    def _is_macro(self, head: int, at: int) -> bool:
        """Return whether the tokens from ``head`` to ``at`` use a macro that is a statement without a semicolon."""
        name = self._text(head)
        if not _MACRO.fullmatch(name) or self._text(head + 1) != "(" or self._behind(head + 1) != at:
            return False
        if _PREFIX.fullmatch(name):
            return False
        following = self._text(at)
        is_attribute = following == self._text(at + 1) == "["
        return following in ("", "}") or following.isidentifier() or is_directive(following) or is_attribute

    def _classify(self, start: int, head: int, end: int, *, is_type: bool) -> None:
        first = self._text(head)
        is_macro = bool(_MACRO.fullmatch(first)) and self._text(head + 1) == "(" and not _PREFIX.fullmatch(first)
        has_body = self._text(end - 1) == "}" or (self._text(end - 1) == ";" and self._text(end - 2) == "}")
        if is_type:
            self._add(Kind.TYPE, self._name_of_type(head, end), start, end, head)
        elif is_macro and first.startswith("TORCH_LIBRARY"):
            self._block(start, end)
        elif is_macro and self._text(self._behind(head + 1)) == "(" and has_body:
            inside = range(head + 2, self._behind(head + 1) - 1)
            name = "_".join(self._text(i) for i in inside if self._tokens[i].isidentifier())
            self._add(Kind.FUNCTION, [name], start, end, head, head)
        elif is_macro or (first == "template" and self._text(head + 1) != "<"):
            self._add(Kind.REGISTRATION, (), start, end)
        elif first in ("using", "typedef", "static_assert", "friend"):
            self._add(Kind.OTHER, self._name_of_alias(head, end), start, end)
        else:
            at = self._name(head, end)
            name = self._text(at) if at >= 0 else ""
            is_function = has_body and at >= 0 and not self._has_value(head, end)
            names = [name] if is_function or not name else [name, *self._more_names(at, end)]
            self._add(Kind.FUNCTION if is_function else Kind.OTHER, names if name else (), start, end, head, at)

    def _outside(self, at: int, end: int) -> Iterator[int]:
        """Yield the indices of the tokens outside of brackets, and of opening brackets."""
        while at < end:
            yield at
            at = self._behind(at) if self._text(at) in ("(", "[", "{") else at + 1

    def _more_names(self, at: int, end: int) -> list[str]:
        """Return the names of variables that a statement defines after the one at ``at``."""
        commas = (i for i in self._outside(at, end) if self._text(i) == ",")
        names = (self._text(i + 1 + (self._text(i + 1) in ("*", "&"))) for i in commas)
        return [name for name in names if name.isidentifier()]

    def _has_value(self, head: int, end: int) -> bool:
        found = (self._text(i) for i in self._outside(head, end))
        return next((text for text in found if text in ("operator", "=")), "") == "="

    def _name(self, head: int, end: int) -> int:
        """Return the index of the name of a function or variable; -1 if there is none."""
        at = head
        while at < end:
            text = self._text(at)
            if text == "operator":
                return at
            if text in ("(", "=", "{", ";", "["):
                before = at - 1
                if self._text(before) == ">":  # an instance of a template
                    depths = accumulate(ANGLES.get(self._text(i), 0) for i in range(before, head, -1))
                    before -= next((i for i, depth in enumerate(depths) if depth == 0), before - head) + 1
                if text == "(" and (self._text(before) in _NO_NAME or _PREFIX.fullmatch(self._text(before))):
                    at = self._behind(at)
                    continue
                return before if before >= head and self._tokens[before].isidentifier() else -1
            if text == "<" and self._tokens[at - 1].isidentifier():
                try:
                    with_end = self._behind_template(at)
                except _UnbalancedError:  # "less than" within a template's arguments
                    with_end = end + 1
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
            name = self._text(at) if self._text(at).isidentifier() and self._text(at) not in _TYPES else name
            at += 1
        names = [name] if name else []
        if self._text(head) == "enum" and self._text(at) != ";" and self._text(head + 1) not in ("class", "struct"):
            opening = next((i for i in range(at, end) if self._text(i) == "{"), end)
            names += [self._text(i) for i in range(opening + 1, end) if self._text(i - 1) in ("{", ",")]
        return names

    def _name_of_alias(self, head: int, end: int) -> list[str]:
        words = [self._text(i) for i in range(head + 1, end) if self._tokens[i].isidentifier()]
        if self._text(head) == "using" and self._text(head + 1) != "namespace":
            has_value = self._text(head + 2) == "="
            return words[:1] if has_value else words[-1:]
        return words[-1:] if self._text(head) == "typedef" else []

    def _block(self, start: int, end: int) -> None:
        """Add the block of a macro that registers kernels, and then the statements in it."""
        number = len(self.found)
        opening = next((i for i in range(start, end) if self._text(i) == "{"), -1)
        self._add(Kind.REGISTRATION, (), start, end)
        if opening < 0:
            return
        self._head = [self._text(i) for i in range(start, opening)]
        at = first = opening + 1
        last = self._behind(opening) - 1
        while at < last:
            if is_directive(self._tokens[at]):
                name = _DEFINES.match(self._tokens[at])
                self._add(Kind.MACRO if name else Kind.DIRECTIVE, [name[1]] if name else (), at, at + 1, block=number)
                at = first = at + 1
            elif self._text(at) in ("(", "{", "["):
                at = self._behind(at)
                if self._is_macro(first, at):
                    self._add(Kind.REGISTRATION, (), first, at, block=number)
                    first = at
            elif self._text(at) == ";":
                at += 1
                self._add(Kind.REGISTRATION, (), first, at, block=number)
                first = at
            else:
                at += 1
        if first < last:
            self._add(Kind.REGISTRATION, (), first, last, block=number)
        self._head = []
