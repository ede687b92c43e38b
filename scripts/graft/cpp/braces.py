"""Find the brace that a text does not close, by its indentation: a parser only finds that one is open at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .tokens import is_directive, tokens

# Statements that begin with these have braces around others, which need not be indented.
_AROUND = ("namespace", "extern")
_BLANKS = re.compile(r"[ \t]*")
# The end of a namespace, as formatters write it.
_OF_NAMESPACE = re.compile(r"\}[ \t]*//[ \t]*(?:end )?namespace\b")


def open_brace(text: str) -> tuple[int, int] | None:
    """Return the line and the column of the ``{`` that probably lacks its ``}``; None if none is open in a text.

    It is the first one whose content is indented no more than itself; or else the last one that is open, or that begins
    a function. Braces of namespaces count only if no other can be it.
    """
    every, ends = tokens(text)
    starts = [end - len(token) for token, end in zip(every, ends, strict=True)]
    opened: list[_Brace] = []
    begin, last, found = 0, None, None
    for i, (token, start) in enumerate(zip(every, starts, strict=True)):
        inside = opened[-1] if opened and not opened[-1].is_around else None
        indent = _indent(text, starts[begin])  # that of the statement's first line
        if token == "{":
            if inside and _line(text, start) > inside.line and indent <= inside.indent and begin < i:
                found = found or inside
            is_outer = not opened or opened[-1].is_around
            column = start - text.rfind("\n", 0, start)
            opened.append(_Brace(_line(text, start), column, indent, every[begin] in _AROUND))
            last = opened[-1] if is_outer and not opened[-1].is_around else last
        elif token == "}" and opened:
            is_first = not text[text.rfind("\n", 0, start) + 1 : start].strip()
            if inside and ((is_first and _indent(text, start) < inside.indent) or _OF_NAMESPACE.match(text, start)):
                found = found or inside
            opened.pop()
        if token in "{};" or is_directive(token):
            begin = min(i + 1, len(starts) - 1)
    if not opened:
        return None
    lacking = found or next((each for each in reversed(opened) if not each.is_around), None) or last or opened[-1]
    return lacking.line, lacking.column


@dataclass(frozen=True)
class _Brace:
    """A ``{``: its place, the indentation of its statement, and whether it is a namespace's."""

    line: int
    column: int
    indent: int
    is_around: bool


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _indent(text: str, at: int) -> int:
    """Return the indentation of the line that contains a position."""
    start = text.rfind("\n", 0, at) + 1
    blanks = _BLANKS.match(text, start)
    return blanks.end() - start if blanks else 0
