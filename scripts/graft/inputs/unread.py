"""Find C++ sources below a native folder that no build reads: ``make check`` looks there for missing kernels."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from ..core import folders

# The suffixes of C++ sources. PyTorch's build compiles only the first two.
SOURCE_SUFFIXES = (".cpp", ".cu", ".cc", ".cxx", ".c++", ".C", ".c")
# The beginnings of the names of folders that are skipped: output of builds, tests, third-party code.
_OF_OTHERS = ("build", "dist", "node_modules", "tests", "third_party")
# Limits: a folder may be a large repository. Reading more would take longer than the other checks.
_FILES, _BYTES = 200, 1_000_000


def sources_elsewhere(native: Path, read: Collection[str]) -> list[Path]:
    """Return the C++ sources in folders below ``native``, except in the folders ``read``, as relative paths."""
    found = (path for path in _walk(native, read) if path.suffix in SOURCE_SUFFIXES and path.stat().st_size <= _BYTES)
    return sorted(path.relative_to(native) for path in islice(found, _FILES))


def _walk(native: Path, read: Collection[str]) -> Iterator[Path]:
    entries = 0
    for parent, names, files in os.walk(native):
        folder = Path(parent)
        entries += len(names) + len(files)
        if entries > 10 * _FILES:
            return
        is_read = read if folder == native else ()
        names[:] = sorted(name for name in names if name not in is_read and _may_have_kernels(folder / name))
        if folder != native:
            yield from (folder / name for name in sorted(files) if (folder / name).is_file())


def _may_have_kernels(folder: Path) -> bool:
    is_others = folder.name.startswith((".", *_OF_OTHERS)) or (folder / "pyvenv.cfg").exists()
    return not (is_others or folders.is_one_below(folder, is_part=False))
