"""The files of Python packages that are delivered beside torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .settings import OF_TOOLS

# Files that are not delivered: sources, headers, and the output of compilers and Python.
_NOT_CARRIED = re.compile(
    r".*\.(c|cc|cpp|cxx|c\+\+|C|cu|cuh|h|hh|hpp|hxx|inl|inc|ipp|hip|mm|metal|cmake|o|a|pyc|pyd|so|so\..*)"
    r"|CMakeLists\.txt|build\.ninja"
)


def carried(packages: Mapping[str, Sequence[Path]]) -> dict[str, Path]:
    """Return the files of packages, by path below site-packages. Of files with the same path, the first counts."""
    found: dict[str, Path] = {}
    for name, places in packages.items():
        top = name.replace(".", "/")
        for place in places:
            every = _below(place) if place.is_dir() else [(".py", place)]
            for below, path in every:
                found.setdefault(f"{top}{below}", path)
    return found


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    for parent, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if not OF_TOOLS.fullmatch(name))
        for name in sorted(files):
            path = Path(parent, name)
            if not (OF_TOOLS.fullmatch(name) or _NOT_CARRIED.fullmatch(name)) and path.is_file():
                yield f"/{path.relative_to(folder).as_posix()}", path
