"""C++ sources that lie in a native folder where no build reads them: ``make check`` looks there for missing kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..core import folders
from .native import FOLDERS

_SUFFIXES = (".cpp", ".cc", ".cxx", ".cu")
# What others wrote is no kernel of the folder.
_OF_OTHERS = ("build", "dist", "node_modules", "tests", "third_party")
# A folder may be a repository with anything in it. Reading more would take longer than the other checks.
_FILES, _BYTES = 200, 1_000_000


def sources_elsewhere(native: Path) -> list[Path]:
    """Return the C++ sources in folders below ``native`` that no build reads, by their paths there."""
    found = (path for path in _walk(native) if path.suffix in _SUFFIXES and path.stat().st_size <= _BYTES)
    return sorted(path.relative_to(native) for path in islice(found, _FILES))


def _walk(native: Path) -> Iterator[Path]:
    entries = 0
    for parent, names, files in os.walk(native):
        folder = Path(parent)
        entries += len(names) + len(files)
        if entries > 10 * _FILES:
            return
        names[:] = sorted(name for name in names if _may_have_kernels(folder / name, is_top=folder == native))
        if folder != native:
            yield from (folder / name for name in sorted(files) if (folder / name).is_file())


def _may_have_kernels(folder: Path, *, is_top: bool) -> bool:
    is_others = folder.name.startswith((".", *_OF_OTHERS)) or (folder / "pyvenv.cfg").exists()
    is_read = is_top and folder.name in FOLDERS
    return not (is_others or is_read or folders.is_one_below(folder, is_part=False))
