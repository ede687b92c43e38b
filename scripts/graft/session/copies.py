"""Copy libraries that this process has opened, to open them again. Debuggers and profilers read the copies, too."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from ..core.files import delete

_FOLDER = re.compile(r"graft-(\d+)-\w+")
# By process id: a forked process has a folder of its own.
_folders: dict[int, Path] = {}


def copy_of(library: Path) -> Path:
    """Return a copy of a library. It is deleted when this process ends."""
    process = os.getpid()
    if process not in _folders:
        _folders[process] = Path(tempfile.mkdtemp(prefix=f"graft-{process}-"))
        atexit.register(_delete, process)
    _folders[process].mkdir(mode=0o700, exist_ok=True)  # who sees other process ids may have deleted it
    number, path = tempfile.mkstemp(prefix=f"{library.stem}-", suffix=library.suffix, dir=_folders[process])
    with os.fdopen(number, "wb") as file:
        file.write(library.read_bytes())
    return Path(path)


def _delete(process: int) -> None:
    if os.getpid() == process:
        with suppress(OSError):
            delete(_folders.pop(process))


def delete_those_of_the_dead() -> None:
    """Delete the folders that killed processes of this user have left."""
    for folder in Path(tempfile.gettempdir()).glob("graft-*"):
        found = _FOLDER.fullmatch(folder.name)
        with suppress(OSError):
            if found and folder.stat().st_uid == os.getuid() and not _is_alive(found[1]):
                delete(folder)


def _is_alive(process: str) -> bool:
    """Return whether a process runs. One that has ended has no command any more, also if its parent never asks."""
    with suppress(OSError):
        return bool(Path("/proc", process, "cmdline").read_bytes())
    return False
