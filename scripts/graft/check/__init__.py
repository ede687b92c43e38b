"""Find all errors in native folders in one run, before a compiler runs, each with its place.

torchgen decides what is valid wherever it can, and the compiler decides about the types in formulas. This package adds
the place in the user's file and a remedy, and finds errors that neither reports. Start reading with ``functions``,
``derivatives``, ``formulas`` and ``kernels``; ``generated`` checks the code that torchgen writes. torchgen is in the
base's tree, so checks run in a separate process, which ``generator`` starts.

``Findings``, the list that collects errors and warnings, is defined here. Each has a code, which ``codes.md`` explains.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..core.console import WARNING, say
from ..core.errors import BuildError, Finding
from ..inputs.entries import Place

# The prefix of the line in which the checking process passes on its findings, as JSON.
FOUND = "found: "


@dataclass
class Findings:
    """The errors and warnings that the checks found.

    Args:
        found: the findings, without duplicates.
        unreadable: files for which nothing else is reported.
    """

    found: set[Finding] = field(default_factory=set)
    unreadable: set[Path] = field(default_factory=set)

    def add(self, code: str, place: Place, what: str, todo: str, *, is_warning: bool = False) -> None:
        """Add a finding of the kind ``code`` at ``place`` (file, line, column), unless it is there already."""
        if place[0] not in self.unreadable:
            self.found.add(Finding(*place, " ".join(what.split()), todo, is_warning, code))

    def warn(self, code: str, place: Place, what: str, todo: str) -> None:
        """Add a warning, as ``add`` does."""
        self.add(code, place, what, todo, is_warning=True)

    @property
    def errors(self) -> list[Finding]:
        """The findings that prevent a build."""
        return [finding for finding in self.found if not finding.is_warning]

    @property
    def ordered(self) -> list[Finding]:
        """The errors, then the warnings, both in the order of the files."""
        return sorted(self.found, key=lambda each: (each.is_warning, each))

    def lines(self) -> list[str]:
        """Every finding as text, the errors first."""
        return list(map(str, self.ordered))

    def settle(self) -> None:
        """Print the warnings, or raise all findings, and their numbers, if there are errors."""
        text = "\n".join(self.lines())
        if self.errors:
            errors, warnings = len(self.errors), len(self.found) - len(self.errors)
            numbers = [f"{n} {word}{'s' * (n > 1)}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
            text += f"\n{', '.join(numbers)}" if len(self.found) > 1 else ""
            raise BuildError(text, findings=self.ordered)
        if text:
            say(text, WARNING)

    def as_json(self) -> str:
        """Return the text that ``from_json`` reads."""
        return json.dumps([{**asdict(each), "file": str(each.file)} for each in self.found])

    @classmethod
    def from_json(cls, text: str) -> Findings:
        """Return the findings of another process."""
        return cls({Finding(**{**each, "file": Path(each["file"])}) for each in json.loads(text)})


def line_of(file: Path, line: int, seen_from: Path) -> str:
    """Return the words for a place in a message about ``seen_from``: ``line 5``, or ``file:5`` for another file."""
    return f"line {line}" if file == seen_from else f"{file}:{line}"


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean `x`?`` for the word of ``known`` most similar to ``word``. If none is, return
    ``otherwise``, or a list of all words.
    """
    words = sorted(known)
    close = [each for each in words if each.lower() == word.lower()]
    close += difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if otherwise:
        return otherwise
    if not words:
        return "leave it out: there is none"
    return f"write one of {', '.join(words)}" if len(words) <= 40 else "look it up in PyTorch's own file"
