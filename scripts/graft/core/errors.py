"""The errors that a user can see. Each states what failed, the likely cause and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class GraftError(Exception):
    """Base of every expected failure. The exit code is 2 for wrong use, 3 for an error of the operating system, 4 for
    a bug of Graft, else 1.

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


class UsageError(GraftError):
    """An invalid option or a folder that does not exist."""

    exit_code = 2


class PinError(GraftError):
    """A pin, series or patch is missing or invalid."""


class FetchError(GraftError):
    """The base wheel is not available, or is not the pinned one."""


class UnusableBaseError(GraftError):
    """The base is not supported."""


class OperatorError(GraftError):
    """torchgen cannot generate code from native_functions.yaml or derivatives.yaml."""


class CompileError(GraftError):
    """A source does not compile."""


class LinkError(GraftError):
    """A symbol is undefined, or a library cannot be linked."""


class PackError(GraftError):
    """The wheel cannot be written."""


class ToolchainError(GraftError):
    """A tool is missing or too old."""


class CommandError(GraftError):
    """A command failed unexpectedly."""


class SourceError(GraftError):
    """A source tree is not in the expected state."""


class RefusedError(GraftError):
    """The operating system reported an error."""

    exit_code = 3


def run_all(*steps: Callable[[], Any]) -> list[Any]:
    """Run every step even if an earlier one fails, so that the user sees all errors at once. Return the results.

    Raises:
        GraftError: the only error, or one that lists them all, with the exit code of the first.
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
