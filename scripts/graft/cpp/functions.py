"""Find the functions that C++ defines and declares at namespace level, with their types."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from .statements import BRACKETS, Kind, Statement, arguments, statements
from .tokens import is_directive, joined

# Names of types that are aliases, with the types that they stand for. To the linker both are the same.
_ALIASES = {
    "IntArrayRef": "ArrayRef<int64_t>",
    "SymIntArrayRef": "ArrayRef<SymInt>",
    "TensorList": "ArrayRef<Tensor>",
    "OptionalIntArrayRef": "OptionalArrayRef<int64_t>",
    "OptionalSymIntArrayRef": "OptionalArrayRef<SymInt>",
    "DimnameList": "ArrayRef<Dimname>",
    "ITensorListRef": "IListRef<Tensor>",
    "long": "int64_t",
    "variable_list": "vector<Tensor>",
    "Variable": "Tensor",
    "SparseTensor": "Tensor",
    "SparseCsrTensor": "Tensor",
}


def canonical(cpp_type: str) -> str:
    """Return a type in one spelling: without namespaces and aliases, and with ``const`` in front if it matters."""
    text = re.sub(r"\[\[.*?\]\]|\bC10_\w+|\b(?:at|c10|std|torch|native)\s*::", " ", cpp_type)
    text = re.sub(r"\b(?:class|struct|typename|inline|TORCH_API)\b|::", " ", text)
    words = [_ALIASES.get(word, word) for word in re.findall(r"\w+|\.{3}|\S", text)]
    named = " ".join(word for word in words if word != "const")
    named = re.sub(r"\s*([^\w\s])\s*", r"\1", named)
    is_by_value = not named.endswith(("&", "*"))
    return named if "const" not in words or is_by_value else f"const {named}"


# Words before the type that a function returns.
_SPECIFIERS = {'"C"', "static", "inline", "constexpr", "extern", "virtual", "explicit", "friend"}
# Words that may be the last one of a type, so that they name no parameter.
_OF_TYPES = {"const", "volatile", "int", "long", "short", "char", "double", "unsigned", "signed", "auto"}
_QUALIFIERS = {"const", "volatile", "typename", "struct", "class", "enum"}
_MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}")
# Decorations of a declaration that are no macros in capitals.
_DECORATION = re.compile(r"TORCH_\w*API|C10_\w+|__\w+__")
_AFTER_PARAMETERS = {*"{;&:=[", "->"}


@dataclass(frozen=True)
class Definition:
    """A function definition or declaration.

    Args:
        file: its file.
        line: counted from 1.
        namespace: for example ``at::native``.
        name: its name; for ``TORCH_IMPL_FUNC(name)`` etc. the text in parentheses.
        macro: ``TORCH_IMPL_FUNC`` etc.; empty for a plain function.
        returns: the return type, as written.
        parameters: the parameter types, as written.
        is_local: whether other files cannot call it: it is static, a template, or in an anonymous namespace.
        is_inline: whether several files may define it.
        defaults: the positions of the parameters that have a default.
        is_template: whether it is a template.
    """

    file: Path
    line: int
    namespace: str
    name: str
    macro: str
    returns: str
    parameters: tuple[str, ...]
    is_local: bool
    is_inline: bool = False
    defaults: tuple[int, ...] = ()
    is_template: bool = False

    def __str__(self) -> str:
        parameters = f"({', '.join(self.parameters)})"
        return f"{self.macro}({self.name}){parameters}" if self.macro else f"{self.returns} {self.name}{parameters}"

    @property
    def key(self) -> tuple[str, ...]:
        """The key that distinguishes overloads: the name, and the types of the parameters in one spelling."""
        return (self.name, *map(canonical, self.parameters))

    def has_types(self, returns: str, parameters: Iterable[str]) -> bool:
        """Return whether it has these types. ``auto`` as its return type matches any."""
        is_returned = not self.returns or "auto" in self.returns or canonical(self.returns) == canonical(returns)
        return is_returned and [*map(canonical, self.parameters)] == [*map(canonical, parameters)]


def functions(text: str, file: Path) -> Iterator[tuple[Definition, Statement]]:
    """Yield the functions that a text defines and declares, each with its statement.

    Functions of macros that the text defines are at the line of the macro's use.
    """
    lines = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
    for each in statements(text, is_strict=False):
        line = bisect_right(lines, each.start)
        for one in each.expansion or [each]:
            placed = one if one is each else replace(one, namespace=(*each.namespace, *one.namespace))
            if definition := function_of(placed, file, line):
                yield definition, one


def function_of(statement: Statement, file: Path = Path(), line: int = 0) -> Definition | None:
    """Return the function that a statement defines or declares, or None."""
    every, at = statement.tokens, statement.name
    if at < 0 or statement.kind not in (Kind.FUNCTION, Kind.OTHER) or every[0] in ("using", "typedef", "friend"):
        return None
    around, is_local = "::".join(filter(None, statement.namespace)), "" in statement.namespace
    opening = _opening(every, at)
    behind = behind_brackets(every, opening)
    is_macro = opening == at + 1 and every[behind : behind + 1] == ("(",) and at == statement.head
    if is_macro:  # TORCH_IMPL_FUNC(name)(parameters)
        listed = arguments(every[behind:], of_types=True)
        name, types = joined(every[opening + 1 : behind - 1]), [parameter_type(each) for each in listed]
        return Definition(file, line, around, name, every[at], "", tuple(types), is_local)
    after = every[behind] if behind < len(every) else ";"
    if every[opening : opening + 1] != ("(",) or not (after in _AFTER_PARAMETERS or after.isidentifier()):
        return None
    listed = arguments(every[opening:], of_types=True)
    if not all(map(_may_be_parameter, listed)):
        return None
    first = _scope(every, at)
    scope = joined(every[first:at]).strip(":")
    before, is_template = every[:first], every[0] == "template"
    return Definition(
        file,
        line,
        "::".join(filter(None, (around, scope))),
        _name(every, at, opening),
        "",
        _returns(every[statement.head : first], every[behind:]),
        () if listed == [["void"]] else tuple(map(parameter_type, listed)),
        is_local or "static" in before or is_template,
        not {"inline", "constexpr"}.isdisjoint(before),
        tuple(i for i, each in enumerate(listed) if "=" in each),
        is_template,
    )


def _opening(every: Sequence[str], at: int) -> int:
    """Return the index of the bracket of the parameters of the function whose name is at ``at``."""
    if every[at] == "operator" and every[at + 1 : at + 3] == ("(", ")"):
        return at + 3
    opening = next((i for i in range(at + 1, len(every)) if every[i] == "("), len(every))
    is_next = every[at] == "operator" or opening == at + 1 or every[at + 1] == "<"
    return opening if is_next else len(every)


def behind_brackets(every: Sequence[str], opening: int) -> int:
    """Return the index after the bracket that closes the one at ``opening``."""
    depth = 0
    for i in range(opening, len(every)):
        depth += BRACKETS.get(every[i], 0)
        if depth == 0:
            return i + 1
    return len(every)


def _scope(every: Sequence[str], at: int) -> int:
    """Return the index of the first token of the scope before the name at ``at``: of ``A<T>::B::`` before ``name``."""
    first = at - (every[at - 1] == "~")
    while first > 0 and every[first - 1] == "::":
        first -= 1
        depth = 0
        while first > 0 and (every[first - 1] == ">" or depth):
            first -= 1
            depth += {">": 1, "<": -1}.get(every[first], 0)
        if first > 0 and every[first - 1].isidentifier():
            first -= 1
    return first


def _name(every: Sequence[str], at: int, opening: int) -> str:
    name = every[at:opening] if every[at] == "operator" else every[at : at + 1]
    return ("~" if every[at - 1] == "~" else "") + joined(name)


def _returns(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the type that a function returns; empty for a constructor."""
    for i, token in enumerate(after):
        if token in ("{", ";", ":"):
            break
        if token == "->":
            end = next((j for j in range(i, len(after)) if after[j] in ("{", ";")), len(after))
            return joined(after[i + 1 : end])
    left = [each for each in before if not is_directive(each)]
    kept: list[str] = []
    while left:
        token = left.pop(0)
        is_macro = bool(_MACRO.fullmatch(token)) and bool(left) and (left[0].isidentifier() or left[0] == "(")
        if token == "[" and left[:1] == ["["]:
            left = left[behind_brackets([token, *left], 0) - 1 :]
        elif is_macro or _DECORATION.fullmatch(token):
            left = left[behind_brackets(left, 0) if left[:1] == ["("] else 0 :]
        elif token not in _SPECIFIERS:
            kept.append(token)
    return joined(kept)


def _may_be_parameter(every: Sequence[str]) -> bool:
    is_type = bool(every) and (every[0].isidentifier() or every[0] in ("::", "[", "."))
    return is_type and every[0] not in ("true", "false", "this", "nullptr", "sizeof")


def parameter_type(every: Sequence[str]) -> str:
    """Return the type of a parameter, without its name and default."""
    every = every[: [*every, "="].index("=")]
    depth, named, has_type = 0, -1, False
    for i, token in enumerate(every):
        if depth == 0 and token.isidentifier() and token not in _QUALIFIERS:
            named = i if has_type and token not in _OF_TYPES and every[i - 1] != "::" else -1
            has_type = True
        depth += BRACKETS.get(token, 0) + {"<": 1, ">": -1}.get(token, 0)
    return joined(each for i, each in enumerate(every) if i != named)
