"""Wait until a file of native folders is saved."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..core.errors import GraftError
from .native import load_native
from .settings import files_above

# Seconds between two checks.
PAUSE = 0.2
# Seconds for which a file may be absent that an editor, or git, replaces.
_ABSENT = 2.0

# What a save changes: the times, the inode and the size of a file. A tool may restore its modification time.
State = tuple[int, ...]


def wait_for_save(folders: Iterable[Path], seen: Mapping[Path, State]) -> dict[Path, State]:
    """Return the state of each file, once one differs from those in ``seen``."""
    while (found := states(folders)) == seen:
        time.sleep(PAUSE)
    return settled(folders, seen, found)


def settled(folders: Iterable[Path], seen: Mapping[Path, State], found: dict[Path, State]) -> dict[Path, State]:
    """Return the state of each file, once all are written: an editor, or git, writes them one after another, and may
    delete one first.
    """
    began = time.monotonic()
    while True:
        time.sleep(PAUSE)
        before, found = found, states(folders)
        is_absent = not seen.keys() <= found.keys() and time.monotonic() < began + _ABSENT
        if found == before and not is_absent:
            return found


def states(folders: Iterable[Path]) -> dict[Path, State]:
    """Return the state of each file that a build reads; an empty one for a folder that cannot be read."""
    found: dict[Path, State] = {}
    for folder in folders:
        try:
            paths = load_native(folder).inputs
        except (GraftError, OSError):
            paths, found[folder] = files_above(folder), ()
        for path in paths:
            with suppress(OSError):  # it is being replaced
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
    return found
