"""Errors as users see them. An unexpected exception is reported as a bug of Graft."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import time
import traceback
from pathlib import Path

from .console import say
from .errors import GraftError
from .layout import HOME, PACKAGE
from .system_errors import refused


class BugError(GraftError):
    """An exception that Graft does not expect."""

    exit_code = 4


def expected(error: Exception) -> GraftError:
    """Return the error that a user sees for any exception."""
    if isinstance(error, GraftError):
        return error
    return refused(error) if isinstance(error, OSError) else _bug(error)


def say_error(error: Exception) -> int:
    """Print the error that a user sees for any exception. Return the exit code."""
    shown = expected(error)
    say(f"error: {shown}")
    return shown.exit_code


def traced(error: BaseException) -> str:
    """Return the tracebacks of an error and of the errors that led to it, the first cause first.

    Leave out the message of the error, which is printed next, and those of Graft's other errors, which repeat it.
    """
    chain = [error]
    while cause := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__):
        chain.append(cause)
    lines: list[str] = []
    for each in reversed(chain):
        name, is_shown = type(each).__name__, each is error or isinstance(each, GraftError)
        lines += ["Traceback (most recent call last):\n", *traceback.format_tb(each.__traceback__)]
        lines += [f"{name}\n"] if is_shown else traceback.format_exception_only(each)
    return "".join(lines).rstrip()


def _bug(error: Exception) -> BugError:
    """Return the error for an unexpected exception. Write its traceback into a file."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [(Path(each.filename), each.lineno) for each in frames if Path(each.filename).is_relative_to(PACKAGE)]
    stage = ""
    if ours:
        place = ours[-1][0].relative_to(PACKAGE)
        stage = f" in its stage {place.parts[0].removesuffix('.py')} ({place}:{ours[-1][1]})"
    return BugError(
        f"{type(error).__name__}: {error}",
        cause=f"this is a bug of Graft{stage}, not a mistake of yours",
        todo=f"report it as an issue of Graft, with {_described(error)}, which has the command, the versions and the "
        "traceback",
    )


def _described(error: Exception) -> Path:
    """Write a file for a bug report: the command, the versions and the traceback. Return its path."""
    said = [
        f"command: {shlex.join([sys.executable, *sys.argv])}",
        f"folder: {Path.cwd()}",
        f"Python {sys.version}",
        platform.platform(),
        "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    ]
    name = f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (HOME / "bugs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("\n".join(said), encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        break
    return folder / name
