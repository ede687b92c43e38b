"""Find the functions that C++ defines and declares at namespace level, with their types."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .statements import ANGLES, BRACKETS, Kind, Statement, arguments, statements
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


# What stands before the type that a function returns: specifiers, attributes, and macros, which are in capitals.
_NO_TYPE = re.compile(
    r"""\[\[.*?\]\]|"C"|\b(?:static|inline|constexpr|extern|virtual|explicit|friend|TORCH_\w*API|C10_\w+|__\w+__"""
    r"""|[A-Z][A-Z0-9_]{2,}(?=[ (]))\b(?:\((?:[^()]|\([^()]*\))*\))?"""
)
# The scope before a name: ``A<T>::B::``, and the tilde of a destructor.
_SCOPE = re.compile(r"(?:\w*(?:<[^()\s]*>)?::)*~?$")
# Words that may be the last one of a type, so that they name no parameter.
_OF_TYPES = {"const", "volatile", "int", "long", "short", "char", "double", "unsigned", "signed", "auto"}
_QUALIFIERS = {"const", "volatile", "typename", "struct", "class", "enum"}
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
    lines = [0, *(found.end() for found in re.finditer("\n", text))]
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
    _, behind = arguments(every, opening)
    if at == statement.head and opening == at + 1 and every[behind : behind + 1] == ("(",):
        # TORCH_IMPL_FUNC(name)(parameters)
        types = [parameter_type(each) for each in arguments(every, behind, of_types=True)[0]]
        name = joined(every[opening + 1 : behind - 1])
        return Definition(file, line, around, name, every[at], "", tuple(types), is_local)
    after = every[behind] if behind < len(every) else ";"
    listed, _ = arguments(every, opening, of_types=True)
    is_call = any(each[:1] == [] or not (each[0][0].isidentifier() or each[0][0] in ":[.") for each in listed)
    if opening == len(every) or is_call or not (after in _AFTER_PARAMETERS or after.isidentifier()):
        return None
    before = joined(each for each in every[statement.head : at] if not is_directive(each))
    scope = found[0] if (found := _SCOPE.search(before)) else ""
    returns = " ".join(_NO_TYPE.sub(" ", before.removesuffix(scope)).split())
    behind_them = statement.before_body[behind:]
    if returns == "auto" and "->" in behind_them:
        returns = joined(behind_them[behind_them.index("->") + 1 :]).rstrip(";")
    is_template, words = every[0] == "template", {*every[statement.head : at]}
    return Definition(
        file,
        line,
        "::".join(filter(None, (around, scope.rstrip("~").strip(":")))),
        "~" * scope.endswith("~") + (joined(every[at:opening]) if every[at] == "operator" else every[at]),
        "",
        returns,
        () if listed == [["void"]] else tuple(map(parameter_type, listed)),
        is_local or is_template or "static" in words,
        not words.isdisjoint({"inline", "constexpr"}),
        tuple(i for i, each in enumerate(listed) if "=" in each),
        is_template,
    )


def _opening(every: Sequence[str], at: int) -> int:
    """Return the index of the bracket before the parameters of the function whose name is at ``at``."""
    if every[at] == "operator" and every[at + 1 : at + 3] == ("(", ")"):
        return at + 3
    is_followed = every[at] == "operator" or every[at + 1 : at + 2] in (("(",), ("<",))
    return every.index("(", at) if is_followed and "(" in every[at:] else len(every)


def parameter_type(every: Sequence[str]) -> str:
    """Return the type of a parameter, without its name and default."""
    every = every[: [*every, "="].index("=")]
    depth, named, has_type = 0, -1, False
    for i, token in enumerate(every):
        if depth == 0 and token.isidentifier() and token not in _QUALIFIERS:
            named = i if has_type and token not in _OF_TYPES and every[i - 1] != "::" else -1
            has_type = True
        depth += BRACKETS.get(token, 0) + ANGLES.get(token, 0)
    return joined(each for i, each in enumerate(every) if i != named)
