"""Wait until a file that a build reads is saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ..core.errors import GraftError
from .native import load_native
from .settings import files_above

# The least pause between two checks: in seconds, and as a multiple of the time that a check takes.
PAUSE, _TIMES = 0.2, 4
# How many seconds a file may be absent, while an editor or git replaces it.
_ABSENT = 2.0

# What tells whether files were saved: for a file, its times, inode and size, since a tool may restore its modification
# time; for a checkout, what git knows of it.
States: TypeAlias = dict[Path, Hashable]


def wait_for_save(look: Callable[[], States], seen: Mapping[Path, Hashable]) -> States:
    """Return what ``look`` finds, once that differs from ``seen`` and all files are written."""
    return settled(look, seen, next(found for found in _looks(look) if found != seen))


def settled(look: Callable[[], States], seen: Mapping[Path, Hashable], found: States) -> States:
    """Return what ``look`` finds, once all files are written: an editor, or git, writes them one after another, and may
    delete one first.
    """
    began = time.monotonic()
    for later in _looks(look):
        is_absent = not seen.keys() <= later.keys() and time.monotonic() < began + _ABSENT
        if later == found and not is_absent:
            break
        found = later
    return found


def _looks(look: Callable[[], States]) -> Iterator[States]:
    """Yield what ``look`` finds, each time after a pause."""
    took = 0.0
    while True:
        time.sleep(max(PAUSE, _TIMES * took))
        start = time.perf_counter()
        found = look()
        took = time.perf_counter() - start
        yield found


def states(folders: Iterable[Path]) -> States:
    """Return the state of each file that a build reads; an empty one for a folder that cannot be read."""
    found: States = {}
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
