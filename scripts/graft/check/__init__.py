"""Find all errors in native folders in one run, before a compiler runs, each with its place.

torchgen decides what is valid wherever it can, and the compiler about the types in formulas. This package adds the
place in the user's file and a remedy, and checks what both accept. Read ``functions``, ``derivatives``, ``formulas``,
``kernels``, and ``generated``, which reads what torchgen made.
torchgen is in the base's tree, so checks run in a separate process, which ``process`` starts.

The results are here: errors and warnings, and the list that collects them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..inputs.entries import Place

# The line that the checking process prints after the warnings if it found no errors.
CHECKED = "checked"


@dataclass(frozen=True, order=True)
class Finding:
    """An error or a warning.

    Args:
        file: its file.
        line: counted from 1.
        column: counted from 1; 0 if the line is enough.
        what: what is wrong.
        todo: what to write instead.
        is_warning: whether a build continues, because the text alone is not conclusive.
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
    """All findings.

    Args:
        found: the findings, without duplicates.
        unreadable: files for which nothing else is reported.
    """

    found: set[Finding] = field(default_factory=set)
    unreadable: set[Path] = field(default_factory=set)

    def add(self, place: Place, what: str, todo: str, *, is_warning: bool = False) -> None:
        """Add a finding at ``place`` (file, line, column), unless it is there already."""
        if place[0] not in self.unreadable:
            self.found.add(Finding(*place, " ".join(what.split()), todo, is_warning))

    @property
    def errors(self) -> list[Finding]:
        """The findings that prevent a build."""
        return [finding for finding in self.found if not finding.is_warning]

    def lines(self) -> list[str]:
        """Every finding, in the order of the files."""
        return [str(finding) for finding in sorted(self.found)]


def line_of(file: Path, line: int, seen_from: Path) -> str:
    """Return how a message about ``seen_from`` refers to a place."""
    return f"line {line}" if file == seen_from else f"{file}:{line}"


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean `x`?`` for the word of ``known`` most similar to ``word``, or else ``otherwise``, or all of
    them.
    """
    words = sorted(known)
    close = [each for each in words if each.lower() == word.lower()]
    close += difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    if otherwise:
        return otherwise
    return f"write one of {', '.join(words)}" if len(words) <= 40 else "look it up in PyTorch's own file"
