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
# Seconds to wait for an absent file: an editor or git may be replacing it.
_ABSENT = 2.0

# The state of a file, which a save changes: its times, inode and size. A tool may restore its modification time.
State = tuple[int, ...]


def wait_for_save(folders: Iterable[Path], seen: Mapping[Path, State]) -> dict[Path, State]:
    """Wait until the files differ from ``seen``. Return the state of each file."""
    while (found := states(folders)) == seen:
        time.sleep(PAUSE)
    return settled(folders, seen, found)


def settled(folders: Iterable[Path], seen: Mapping[Path, State], found: dict[Path, State]) -> dict[Path, State]:
    """Wait until all files are written. Return the state of each file. An editor or git writes files one after another,
    and may delete one first.
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
