"""Rewrite messages about files made from texts, so that they name places in a cell, or in arguments of load_inline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..core.errors import BuildError, Finding, GraftError, UsageError
from ..inputs.native import DERIVATIVES, FUNCTIONS
from .cell import Written
from .inline import Texts
from .wrapping import OPENING

# A line of source in a message of g++, or the marks below it.
_EXCERPT = re.compile(r"( *(\d*) \| )(.*)")


@dataclass(frozen=True)
class TextMessages:
    """Rewrites messages about the files made from texts.

    Args:
        texts: the files.
        cell: the cell that the texts were made from; None for the arguments of ``load_inline``.
    """

    texts: Texts
    cell: Written | None = None

    def of(self, text: str) -> str:
        """Return a message with places in the cell instead of the files, and with the lines that it is about."""
        told: list[str] = []
        lines = text.split("\n")
        added = 0
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if excerpt := _EXCERPT.fullmatch(line):
                start, number, shown = excerpt.groups()
                added = (len(OPENING) if OPENING in shown else 0) if number else added
                told.append(start + (shown.replace(OPENING, "", 1) if number else shown[added:]))
                continue
            told.append(self._renamed(line))
            place = self._place.search(line)
            if place and place["line"] and not _EXCERPT.fullmatch(following):
                told += self._source(place["name"]).excerpt(*self._found(place))
        return "\n".join(told)

    def retold(self, error: GraftError) -> GraftError:
        """Rewrite an error in place. Return it."""
        error.what, error.cause, error.todo = self.of(error.what), self._renamed(error.cause), self._renamed(error.todo)
        error.args = (error.what,)
        if isinstance(error, BuildError):
            error.findings = tuple(map(self._finding, error.findings))
        return error

    def _finding(self, finding: Finding) -> Finding:
        what, todo = self._renamed(finding.what), self._renamed(finding.todo)
        found = self._place.fullmatch(f"{finding.file}:{finding.line}:{finding.column}")
        if not found:
            return replace(finding, what=what, todo=todo)
        line, column = self._found(found)
        label = self._source(found["name"]).label
        return replace(finding, file=Path(label), line=line, column=column, what=what, todo=todo)

    def _source(self, name: str) -> Written:
        """Return the text that a file was made from."""
        return self.cell or self.texts.written[name]

    @cached_property
    def _files(self) -> dict[str, list[str]]:
        """The lines of the files, by name."""
        given = self.texts.given
        try:
            made = self.texts.files()
        except UsageError:  # the error that is rewritten
            made = given
        return {name: made[name].split("\n") for name in given}

    @cached_property
    def _place(self) -> re.Pattern[str]:
        """Matches one of the files, with or without its folder, and its line and column if they follow."""
        names = "|".join(map(re.escape, self._files))
        folder = r"(?<![\w./-])(?:/(?:[^:\n]*?/)?|(?:[\w.-]+/)*)"
        return re.compile(rf"(?:{folder})(?P<name>{names})(?![\w/])(?::(?P<line>\d+)(?::(?P<column>\d+))?)?")

    def _renamed(self, text: str) -> str:
        def rename(place: re.Match[str]) -> str:
            label = self._source(place["name"]).label
            if not place["line"]:
                return (f"the {label}" if self.cell else label) if "/" in place[0] else place[0]
            line, column = self._found(place)
            return f"{label}:{line}:{column}" if column else f"{label}:{line}"

        return self._place.sub(rename, text)

    def _found(self, place: re.Match[str]) -> tuple[int, int]:
        """Convert a match of ``_place`` to a line and a column of the text that the file was made from."""
        name, line, column = place["name"], int(place["line"]), int(place["column"] or 0)
        source, written = self._source(name), _line(self._files[name], line)
        is_schema = name == str(FUNCTIONS) or (name == str(DERIVATIVES) and line == source.line)
        if source.schema and is_schema:
            shown = _line(source.lines, source.line)
            return source.line, _moved(column, written, shown, [source.schema]) or 0
        line = min(line, len(source.lines))  # the end of the file may be behind the end of the text
        shown = _line(source.lines, line)
        moved = _moved(column, written, shown, [shown.strip().removeprefix("//").strip(), written.strip()])
        return line, column if moved is None else moved


def _moved(column: int, written: str, shown: str, texts: Sequence[str]) -> int | None:
    """Convert a column of the line ``written`` to one of ``shown``, by a text in both; None if they share none."""
    for text in texts:
        if text and text in written and text in shown:
            return max(0, column - written.index(text) + shown.index(text)) if column else 0
    return None


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""
