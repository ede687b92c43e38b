"""After a change of operators, compile only what the change affects.

Every source of PyTorch includes the headers that declare all operators. A header that only gained declarations gets its
old modification time back, so that ninja does not rebuild its users.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..core.files import write_atomically
from .gains import only_gains
from .tree import count

# This header numbers every name of aten, so a new name changes numbers that existing objects were compiled with. It is
# kept; the symbols of unknown operators are interned at run time.
KEPT = frozenset({"build/aten/src/ATen/core/aten_interned_strings.h"})

_FOLDERS = ("build/aten/src/ATen", "torch/csrc/autograd/generated", "torch/csrc/lazy/generated")
_SAVED = "build/graft-headers"
_NOTE = "build/graft-incremental.json"


@dataclass
class Changes:
    """Headers that the generators changed, by name in the tree.

    Args:
        gained: headers that only gained declarations.
        kept: headers that were restored.
        changed: all others; their users are recompiled.
    """

    gained: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not (self.gained or self.kept or self.changed):
            return "no header changed"
        told = []
        if self.gained:
            gained = count(len(self.gained), "header")
            told.append(f"{gained} only gained declarations, so unchanged sources are not recompiled")
        told += [f"{', '.join(map(_short, self.kept))} is unchanged"] if self.kept else []
        return "; ".join([*told, f"other changes: {', '.join(map(_short, self.changed)) or 'none'}"])


def generate_incrementally(tree: Path, generate: Callable[[], None]) -> Changes:
    """Run the tree's generators, then restore the times of headers that only gained declarations.

    It can be interrupted at any time: the headers are saved first and compared with their copies.

    Args:
        tree: the source tree.
        generate: runs the generators, which write a file only if it changes.
    """
    saved = tree / _SAVED
    if not saved.is_dir():
        partial = saved.with_name(f"{saved.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        for name in generated_headers(tree):
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, partial / name)
        partial.mkdir(parents=True, exist_ok=True)
        partial.rename(saved)
    generate()
    changes = Changes()
    for path in sorted(path for path in saved.rglob("*") if path.is_file()):
        put_back(path, tree, path.relative_to(saved).as_posix(), changes)
    names = {*changes.gained, *changes.kept, *left_as_they_were(tree)}
    write_atomically(tree / _NOTE, json.dumps(sorted(names - set(changes.changed))))
    shutil.rmtree(saved)
    return changes


def put_back(old: Path, tree: Path, name: str, changes: Changes) -> None:
    """Compare the header ``name`` with its ``old`` copy, restore what is possible, and record it in ``changes``."""
    new = tree / name
    if not new.is_file() or new.stat().st_mtime_ns == old.stat().st_mtime_ns:
        return
    if name in KEPT:
        shutil.copyfile(old, new)
        changes.kept.append(name)
    elif only_gains(old.read_text(encoding="utf-8"), new.read_text(encoding="utf-8")):
        changes.gained.append(name)
    else:
        changes.changed.append(name)
        return
    status = old.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def forget(tree: Path) -> int:
    """Mark everything that incremental builds skipped for recompilation. Return the number of headers concerned."""
    shutil.rmtree(tree / _SAVED, ignore_errors=True)
    names = left_as_they_were(tree)
    for name in names:
        if name in KEPT:
            (tree / name).unlink(missing_ok=True)  # so that it is generated again
        elif (tree / name).is_file():
            os.utime(tree / name)
    (tree / _NOTE).unlink(missing_ok=True)
    return len(names)


def left_as_they_were(tree: Path) -> list[str]:
    """Return the headers whose users incremental builds skipped, by name in the tree."""
    note = tree / _NOTE
    return list(json.loads(note.read_text(encoding="utf-8"))) if note.is_file() else []


def generated_headers(tree: Path) -> list[str]:
    """Return the files that the generators wrote, by name in the tree."""
    return [path.relative_to(tree).as_posix() for folder in _FOLDERS for path in sorted((tree / folder).rglob("*.h"))]


def _short(name: str) -> str:
    return name.rpartition("/")[2]
