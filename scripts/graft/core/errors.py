"""The errors that a user can see. Each states what failed, the likely cause and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, order=True)
class Finding:
    """An error or a warning about a place in a file.

    Args:
        file: the user's file.
        line: counted from 1.
        column: counted from 1; 0 if the line is enough.
        what: what is wrong.
        todo: what to write instead; may be empty.
        is_warning: whether a build continues, because the text alone is not conclusive.
        code: the kind of mistake, which ``graft check --explain`` explains; empty for a compiler's message.
    """

    file: Path
    line: int
    column: int
    what: str
    todo: str
    is_warning: bool = False
    code: str = ""

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        kind = "warning: " if self.is_warning else ""
        text = "; ".join(filter(None, [f"{self.file}:{self.line}{column}: {kind}{self.what}", self.todo]))
        return f"{text} [{self.code}]" if self.code else text


class GraftError(Exception):
    """Base of every expected failure. Each kind has its exit code; a bug of Graft has 4 (``bugs.py``).

    Args:
        what: what failed, with ``file:line`` if there is one.
        cause: the likely cause; may be empty.
        todo: what to do next; may be empty.
    """

    exit_code = 1

    def __init__(self, what: str, *, cause: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.todo = todo

    def __str__(self) -> str:
        lines = [self.what]
        if self.cause:
            lines.append(f"  why:  {self.cause}")
        if self.todo:
            lines.append(f"  next: {self.todo}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows: no traceback."""
        return [f"{type(self).__name__}: {self}"]


class BuildError(GraftError):
    """The build failed: a check, torchgen, the compiler or the linker reports an error, or the wheel cannot be written.

    Args:
        findings: the errors as objects, for callers from Python. The message contains them, too.
    """

    def __init__(self, what: str, *, cause: str = "", todo: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(what, cause=cause, todo=todo)
        self.findings = tuple(findings)


class UsageError(GraftError):
    """An input cannot be used: an option, a folder, a pin, a patch, a torch, a source tree."""

    exit_code = 2


class RefusedError(GraftError):
    """The operating system reported an error."""

    exit_code = 3


class MissingError(GraftError):
    """Something is not there: a tool, or a package that cannot be downloaded."""

    exit_code = 5


class CommandError(GraftError):
    """A command failed unexpectedly."""

    exit_code = 6


def run_all(*steps: Callable[[], Any]) -> list[Any]:
    """Run every step even if an earlier one fails, so that the user sees all errors at once. Return the results.

    Raises:
        GraftError: a step failed. If several failed, the error lists all errors: a ``BuildError`` if there are
            findings, otherwise one with the exit code of the first.
    """
    results: list[Any] = []
    failures: list[GraftError] = []
    for step in steps:
        try:
            results.append(step())
        except GraftError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        text = "\n".join(map(str, failures))
        findings = [each for error in failures if isinstance(error, BuildError) for each in error.findings]
        raise BuildError(text, findings=findings) if findings else _of_kind(failures[0], text)
    return results


def _of_kind(error: GraftError, text: str) -> GraftError:
    """Return an error with another text and the same exit code."""
    several = GraftError(text)
    several.exit_code = error.exit_code
    return several
