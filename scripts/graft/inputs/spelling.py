"""Spell schemas as torchgen demands. Users may write them as for ``m.def`` of a TORCH_LIBRARY."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

# Text that is not respelled: defaults of type str.
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")

# Text that does not match is not respelled: torchgen reports the error.
_SCHEMA = re.compile(r"\s*[\w.:]+\s*\(.*\)\s*->.*", re.S)

# Patterns of other spellings, and torchgen's spelling.
_SPELLINGS = (
    (re.compile(r"\s+"), " "),
    (re.compile(r"(?<=[(\[]) | (?=[)\],(\[])"), ""),
    (re.compile(r" ?= ?"), "="),
    (re.compile(r", ?(?=[)\]])"), ""),
    (re.compile(r",(?=\S)"), ", "),
    (re.compile(r"(?<=[\]?])(?=[A-Za-z_])"), " "),
    (re.compile(r" ?-> ?"), " -> "),
)
_LISTS = re.compile(r"\[[^\]]*\]")
# The short form of an alias annotation: `Tensor!` is `Tensor(a!)`, and the next one `Tensor(b!)`.
_WRITTEN = re.compile(r"(?<=\w)(?<!\(\w)!")
# One result in parentheses.
_SINGLE = re.compile(r"-> \(((?:[^(),]|\([a-z]!?\))+)\)$")


def is_schema(text: str) -> bool:
    """Return whether a text is a schema, in whatever spelling."""
    return _SCHEMA.fullmatch(text) is not None


def respelled(schema: str) -> str:
    """Return a schema in torchgen's spelling: one space behind a comma, a letter in each alias annotation, one result
    without parentheses. Other text is returned unchanged.
    """
    if not is_schema(schema):
        return schema
    quoted: list[str] = []

    def hide(match: re.Match[str]) -> str:
        quoted.append(match[0])
        return f"\0{len(quoted) - 1}\0"

    text = _QUOTED.sub(hide, schema.strip())
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = _LISTS.sub(lambda match: match[0].replace(", ", ","), text)
    letters = (letter for letter in string.ascii_lowercase if f"({letter}" not in text)
    text = _WRITTEN.sub(lambda match: f"({next(letters, 'z')}!)", text)
    text = _SINGLE.sub(r"-> \1", text)
    return re.sub("\0(\\d+)\0", lambda match: quoted[int(match[1])], text)


def name_of(operator: str) -> str:
    """Return the name of an operator without its namespace and its overload."""
    return operator.rpartition("::")[2].partition(".")[0]


def python_names(operators: Iterable[str]) -> set[str]:
    """Return the names of the functions and methods of operators."""
    return {name_of(each) for each in operators if each.startswith("aten::")}
