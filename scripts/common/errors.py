"""The errors a user can meet. Each says what failed, the likely cause and what to do next."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .layout import REPOSITORY

# Where programs put what they need for a moment.
_TEMPORARY = Path(os.environ.get("TMPDIR", "/tmp"))


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


class UnusableBaseError(GraftError):
    """The base is of a kind that cannot be built upon."""

    exit_code = 15


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


class RefusedError(GraftError):
    """The operating system refused something."""

    exit_code = 11

    @classmethod
    def of(cls, error: OSError) -> RefusedError:
        """What the system says, about which file, and what helps against it."""
        where = f"{error.filename}: " if error.filename else ""
        return cls(f"{where}{error.strerror or error}", todo=remedy(error))


def refuse_full(said: str, folder: Path) -> None:
    """Check that a program that failed in ``folder`` did not run out of space.

    Raises:
        RefusedError: it did; with what it said.
    """
    if os.strerror(errno.ENOSPC) in said:
        raise RefusedError(said, todo=f"free some space on the file system of {_free_space([folder, _TEMPORARY])}")


def remedy(error: OSError, path: Path | None = None) -> str:
    """What helps against an error of the system.

    Args:
        error: which may name a file.
        path: the file that it is about, if it names none.
    """
    file = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        places = [file] if file else [REPOSITORY / "build", _TEMPORARY]
        return f"free some space on the file system of {_free_space(places)}"
    if error.errno in (errno.EACCES, errno.EPERM) and file:
        return f"change the permissions of {file}, or of the folder that it is in"
    if error.errno == errno.EROFS and file:
        return f"choose a folder that can be written to; the file system of {file} is read-only"
    if error.errno == errno.EFBIG:
        return "raise the limit on the size of files (`ulimit -f`)"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit on open files (`ulimit -n`)"
    return (f"look at {file}; " if file else "") + "with -v (`make ... ARGS=-v`) the error says where it arose"


def _free_space(files: Sequence[Path]) -> str:
    """Folders that are there, with what is free in them."""
    folders = [next(each for each in (file, *file.absolute().parents) if each.is_dir()) for file in files]
    return " or ".join(f"{folder}, where {shutil.disk_usage(folder).free >> 20} MiB are free" for folder in folders)


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
