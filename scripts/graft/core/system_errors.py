"""Errors of the operating system, each with a remedy."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from .errors import RefusedError
from .layout import HOME

# The folder for temporary files.
_TEMPORARY = Path(os.environ.get("TMPDIR", "/tmp"))


def refused(error: OSError) -> RefusedError:
    """Convert an ``OSError``: keep its message and its file, and add a remedy."""
    where = f"{error.filename}: " if error.filename else ""
    return RefusedError(f"{where}{error.strerror or error}", todo=remedy(error))


def refuse_full(said: str, folder: Path) -> None:
    """Raise an error if a program that failed in ``folder``, with the message ``said``, ran out of disk space."""
    if os.strerror(errno.ENOSPC) in said:
        raise RefusedError(said, todo=f"free some space on the file system of {_free_space([folder, _TEMPORARY])}")


def remedy(error: OSError, path: Path | None = None) -> str:
    """Return a remedy for an error of the operating system. ``path`` is the file concerned, if the error names none."""
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
