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
_PAUSE = 0.2


def wait_for_save(folders: Iterable[Path], seen: Mapping[Path, int]) -> dict[Path, int]:
    """Return the time of each file, once one differs from those in ``seen``."""
    while (found := times(folders)) == seen:
        time.sleep(_PAUSE)
    # An editor, or git, may write several files one after another.
    while (later := times(folders)) != found:
        found = later
        time.sleep(_PAUSE)
    return found


def times(folders: Iterable[Path]) -> dict[Path, int]:
    """Return the modification time of each file that a build reads; 0 for a folder that cannot be read."""
    found = {}
    for folder in folders:
        try:
            paths = load_native(folder).inputs
        except (GraftError, OSError):
            paths, found[folder] = files_above(folder), 0
        for path in paths:
            with suppress(OSError):  # it is being replaced
                found[path] = path.stat().st_mtime_ns
    return found
