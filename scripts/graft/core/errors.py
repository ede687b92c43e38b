"""The errors that a user can see. Each states what failed, the likely cause and what to do next."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .layout import HOME

# The folder for temporary files.
_TEMPORARY = Path(os.environ.get("TMPDIR", "/tmp"))


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

    @classmethod
    def of(cls, error: OSError) -> RefusedError:
        """Convert an error of the operating system: its message, its file and a remedy."""
        where = f"{error.filename}: " if error.filename else ""
        return cls(f"{where}{error.strerror or error}", todo=remedy(error))


def refuse_full(said: str, folder: Path) -> None:
    """Check whether a program that failed in ``folder`` ran out of disk space.

    Raises:
        RefusedError: the disk is full; with the program's message.
    """
    if os.strerror(errno.ENOSPC) in said:
        raise RefusedError(said, todo=f"free some space on the file system of {_free_space([folder, _TEMPORARY])}")


def remedy(error: OSError, path: Path | None = None) -> str:
    """Return a remedy for an error of the operating system.

    Args:
        error: the error; it may name a file.
        path: the file concerned, if the error names none.
    """
    file = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        places = [file] if file else [HOME, _TEMPORARY]
        return f"free some space on the file system of {_free_space(places)}"
    if error.errno in (errno.EACCES, errno.EPERM) and file:
        return f"change the permissions of {file}, or of the folder that it is in"
    if error.errno == errno.EROFS and file:
        return f"choose a folder that can be written to; the file system of {file} is read-only"
    if error.errno == errno.EFBIG:
        return "raise the limit on the size of files (`ulimit -f`)"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit on open files (`ulimit -n`)"
    return (f"check {file}; " if file else "") + "run it with -v (`make ... ARGS=-v`) for a traceback"


def _free_space(files: Sequence[Path]) -> str:
    """Name existing folders and the free space on their file systems."""
    folders = [next(each for each in (file, *file.absolute().parents) if each.is_dir()) for file in files]
    return " or ".join(f"{folder}, where {shutil.disk_usage(folder).free >> 20} MiB are free" for folder in folders)


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
