"""One thing that is wrong, and the list that they are gathered in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, order=True)
class Finding:
    """A mistake.

    Args:
        file: where it is.
        line: counted from 1.
        column: counted from 1; 0 where the line says enough.
        what: what is wrong.
        todo: what to write instead.
        is_warning: whether a build goes on all the same: the text alone does not tell for sure.
    """

    file: Path
    line: int
    column: int
    what: str
    todo: str
    is_warning: bool = False

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        kind = "warning: " if self.is_warning else ""
        return f"{self.file}:{self.line}{column}: {kind}{self.what}; {self.todo}"


@dataclass
class Findings:
    """What was found so far.

    Args:
        found: each once.
        unreadable: files of which nothing more is said.
    """

    found: set[Finding] = field(default_factory=set)
    unreadable: set[Path] = field(default_factory=set)

    def add(self, place: tuple[Path, int, int], what: str, todo: str, *, is_warning: bool = False) -> None:
        """Note a mistake at ``place`` (file, line, column). Each is noted once."""
        if place[0] not in self.unreadable:
            self.found.add(Finding(*place, " ".join(what.split()), todo, is_warning))

    @property
    def errors(self) -> list[Finding]:
        """The findings that no build can go on with."""
        return [finding for finding in self.found if not finding.is_warning]

    def lines(self) -> list[str]:
        """Every finding, in the order of the files."""
        return [str(finding) for finding in sorted(self.found)]


def line_of(file: Path, line: int, seen_from: Path) -> str:
    """How a message about ``seen_from`` names a place."""
    return f"line {line}" if file == seen_from else f"{file}:{line}"


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean `x`?`` for that word of ``known`` which is most like ``word``; or else ``otherwise``, or all."""
    words = sorted(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    if otherwise:
        return otherwise
    return f"write one of {', '.join(words)}" if len(words) <= 40 else "look it up in PyTorch's own file"
