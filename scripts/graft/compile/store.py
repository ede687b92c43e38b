"""Objects that builds compiled: of all environments, native folders and releases of PyTorch.

An object is found in two steps, as by ccache's direct mode. The compiler, its flags and the source are its key. A key
has several objects, each with the manifest of what the compiler looked for; the first that holds is used. ccache starts
a process for each source. Here headers are read once for all sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.files import files_below, write_atomically
from .manifest import InputFiles, Manifest, files_in
from .nvcc import Compiler
from .units import INCLUDES, Unit

# The number of objects kept for each key: one for each state of the headers.
_STATES = 8
# If the store has more bytes, the least recently used objects are deleted.
_LIMIT = 2_000_000_000

# Changes with what else decides about objects: the commands in ninja.py.
_FORMAT = 1

# What reading a damaged entry raises.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class StoredObject:
    """An object.

    Args:
        manifest: what it was compiled from.
        state: identifies its contents and its manifest.
        is_new: whether the work folder had another object, or none.
    """

    manifest: Manifest
    state: str
    is_new: bool


class Store:
    """The objects in ``folder``, for a build that finds ``files``."""

    def __init__(self, folder: Path, files: InputFiles) -> None:
        self._folder = folder
        self._files = files

    def find(self, key: str, target: Path, *, is_for_edits: bool) -> StoredObject | None:
        """Make ``target`` an object with this key whose manifest holds. Those that were compiled with a precompiled
        header are for edits only.
        """
        for path in reversed(_entries(self._folder / key)):
            with suppress(*_DAMAGED):  # another build may delete it, too
                entry = json.loads(path.read_text(encoding="utf-8"))
                manifest = Manifest(**entry["manifest"])
                if (is_for_edits or entry["is_exact"]) and manifest.holds(self._files):
                    is_new = _bring(path.with_suffix(".o"), target, entry["object"])
                    with suppress(OSError):  # it is another user's
                        os.utime(path)
                    return StoredObject(manifest, path.stem, is_new)
        return None

    def keep(self, key: str, target: Path, manifest: Manifest, *, is_exact: bool) -> StoredObject:
        """Store an object if its manifest is whole. ``is_exact`` tells whether no precompiled header was used."""
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        entry = json.dumps({"object": digest, "is_exact": is_exact, "manifest": asdict(manifest)})
        path = self._folder / key / f"{hashlib.sha256(entry.encode()).hexdigest()[:32]}.json"
        if manifest.is_whole:
            with suppress(OSError):  # the disk is full, or another build deletes what this one is about to
                path.parent.mkdir(parents=True, exist_ok=True)
                _link(target, path.with_suffix(".o"))
                write_atomically(path, entry)
                for old in _entries(path.parent)[:-_STATES]:
                    _delete(old, old.with_suffix(".o"))
        return StoredObject(manifest, path.stem, is_new=True)

    def prune(self) -> None:
        """Delete the least recently used objects while the store is too large; also what killed builds left."""
        with suppress(OSError):  # another build deletes, too
            entries: dict[Path, list[tuple[Path, os.stat_result]]] = {}
            for path in (self._folder / name for name in files_below(self._folder)):
                entries.setdefault(path.with_name(path.name.partition(".")[0]), []).append((path, path.stat()))
            size = sum(status.st_size for files in entries.values() for _, status in files)
            for files in sorted(entries.values(), key=lambda files: max(status.st_mtime_ns for _, status in files)):
                if size <= _LIMIT:
                    break
                if any(status.st_nlink > 1 for _, status in files):  # a work folder has the object
                    continue
                size -= sum(status.st_size for _, status in files)
                _delete(*(path for path, _ in files))


def key_of(unit: Unit, compiler: Compiler, work: Path, files: InputFiles) -> str:
    """Return a hash of what decides about the object of ``unit``, except for the headers that it reads."""
    # Those of a unit are few. Views have their content in their name.
    own = [flag[2:] for flag in unit.flags if flag.startswith("-Igenerated/units/")]
    headers = sorted(files_in(work, [*own, *map(str, unit.narrow)]))
    contents = [[name, files.hash(name)] for name in (str(unit.source), *headers)]
    command = [compiler.compiler, *compiler.flags, *unit.flags, *map(str, unit.narrow), unit.is_tried]
    program = Path(shutil.which(compiler.compiler) or compiler.compiler).stat()  # it may be a script
    described = [_FORMAT, *INCLUDES, compiler.description, program.st_size, program.st_mtime_ns]
    return hashlib.sha256(json.dumps([described, command, contents]).encode()).hexdigest()


def _bring(stored: Path, target: Path, digest: str) -> bool:
    """Make ``target`` the stored object. Return whether it was another file.

    Raises:
        ValueError: the stored object is damaged.
    """
    with suppress(OSError):
        if target.samefile(stored):
            return False
    data = stored.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(stored)
    with suppress(OSError):
        if target.read_bytes() == data:
            return False
    target.parent.mkdir(parents=True, exist_ok=True)
    _link(stored, target)
    return True


def _link(source: Path, target: Path) -> None:
    """Make ``target`` another name of ``source``, or a copy on another file system. Neither is written in place."""
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    partial.unlink(missing_ok=True)  # of a killed process, perhaps another name of an object
    try:
        try:
            partial.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)  # renaming it does nothing if the target is the same file already


def _delete(*files: Path) -> None:
    """Delete the files of an entry, and its key's folder with the last one."""
    for path in files:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # there are others
        files[0].parent.rmdir()


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a key; those that were used last are last."""
    try:
        return sorted(folder.glob("*.json"), key=_time)
    except OSError:  # another build deletes it
        return []


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
