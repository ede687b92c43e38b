"""The errors a user can meet. Each says what failed, the likely cause and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class GraftError(Exception):
    """Base of every expected failure.

    Args:
        what: what failed, with ``file:line`` where there is one.
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


class UsageError(GraftError):
    """A wrong option or a folder that is not there."""

    exit_code = 2


class PinError(GraftError):
    """A pin, series or patch that is missing or wrong."""

    exit_code = 3


class FetchError(GraftError):
    """The base wheel cannot be had, or is not the pinned one."""

    exit_code = 4


class OperatorError(GraftError):
    """native_functions.yaml or derivatives.yaml cannot be turned into code."""

    exit_code = 5


class CompileError(GraftError):
    """The C++ compiler refused a source."""

    exit_code = 6


class LinkError(GraftError):
    """A symbol is missing, or a library cannot be linked."""

    exit_code = 7


class PackError(GraftError):
    """The wheel cannot be written."""

    exit_code = 8


class ToolchainError(GraftError):
    """A tool is missing or too old."""

    exit_code = 9


class CommandError(GraftError):
    """A command that should not fail did."""

    exit_code = 10


class SourceError(GraftError):
    """A source tree is not as it must be."""

    exit_code = 14


def run_all(*steps: Callable[[], Any]) -> list[Any]:
    """Run every step, also behind one that fails, so that a user learns of all mistakes at once; return their results.

    Raises:
        GraftError: the only failure; or one that names them all, with the exit code of the first.
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
        several = GraftError("\n".join(map(str, failures)))
        several.exit_code = failures[0].exit_code
        raise several
    return results
