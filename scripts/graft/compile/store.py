"""The store of compiled objects, which all clones, environments, native folders and releases of PyTorch share.

An object is found in two steps, as by ccache's direct mode. A hash of the compiler's command and the source is its key.
A key has several objects, each with a manifest of the files that the compiler looked for. The first object whose
manifest holds is used. ccache starts a process for each source. Here headers are read once for all sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.files import write_atomically
from ..core.layout import store
from . import manifest as manifests
from .manifest import InputFiles, Manifest, files_in
from .ninja import command_of
from .nvcc import Compiler
from .units import Unit

# The number of objects kept for each key: one for each state of the headers.
_STATES = 8
# The size in bytes above which the least recently used objects are deleted. This includes objects that a work folder
# links to: each clone links to some.
_LIMIT = 4_000_000_000

# A part of each key: another version of the manifest module may record other things.
_MANIFESTS = hashlib.sha256(Path(manifests.__file__).read_bytes()).hexdigest()

# The exceptions that reading a damaged entry raises.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class StoredObject:
    """A compiled object.

    Args:
        manifest: the files that it was compiled from.
        state: identifies its contents and its manifest; empty if its headers keep changing.
        is_new: whether the work folder had another object, or none.
    """

    manifest: Manifest
    state: str
    is_new: bool


def objects_of_all() -> Path:
    """Return the folder of the objects that all builds of a user share."""
    return store() / "objects"


class Store:
    """The objects in ``folder``, for a build with the input ``files``."""

    def __init__(self, folder: Path, files: InputFiles) -> None:
        self._folder = folder
        self._files = files
        self._has_grown = False

    def find(self, key: str, target: Path, *, is_for_edits: bool) -> StoredObject | None:
        """Make ``target`` the last used object with this key whose manifest holds. Return None if there is none.
        Objects that were compiled with a precompiled header are used only if ``is_for_edits``.
        """
        for path in reversed(_entries(self._folder / key)):
            with suppress(*_DAMAGED):  # another build may delete it at the same time
                entry = json.loads(path.read_text(encoding="utf-8"))
                manifest = Manifest(**entry["manifest"])
                if (is_for_edits or entry["is_exact"]) and manifest.holds(self._files):
                    is_new = _bring(path.with_suffix(".o"), target, entry["object"])
                    with suppress(OSError):  # it is another user's
                        os.utime(path)
                    return StoredObject(manifest, path.stem, is_new)
        return None

    def keep(self, key: str, target: Path, manifest: Manifest, *, is_exact: bool) -> StoredObject:
        """Store an object if its manifest is whole. ``is_exact`` is False if a precompiled header was used."""
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        entry = json.dumps({"object": digest, "is_exact": is_exact, "manifest": asdict(manifest)})
        path = self._folder / key / f"{hashlib.sha256(entry.encode()).hexdigest()[:32]}.json"
        if manifest.is_whole:
            self._has_grown = True
            with suppress(OSError):  # the disk is full, or another build deletes the same files
                path.parent.mkdir(parents=True, exist_ok=True)
                _link(target, path.with_suffix(".o"))
                write_atomically(path, entry)
                for old in _entries(path.parent)[:-_STATES]:
                    _delete(old, old.with_suffix(".o"))
        return StoredObject(manifest, path.stem, is_new=True)

    def prune(self) -> None:
        """If this build added objects, delete the least recently used files until the store is small enough, including
        files that killed builds left.
        """
        if not self._has_grown:
            return
        with suppress(OSError):  # another build deletes, too
            entries: dict[str, list[tuple[Path, os.stat_result]]] = {}
            for key in os.scandir(self._folder):
                for file in os.scandir(key):
                    entry = f"{key.name}/{file.name.partition('.')[0]}"
                    entries.setdefault(entry, []).append((Path(file.path), file.stat()))
            size = sum(status.st_size for files in entries.values() for _, status in files)
            for files in sorted(entries.values(), key=lambda files: max(status.st_mtime_ns for _, status in files)):
                if size <= _LIMIT:
                    break
                size -= sum(status.st_size for _, status in files)
                _delete(*(path for path, _ in files))


def key_of(unit: Unit, compiler: Compiler, work: Path, files: InputFiles) -> str:
    """Return a hash of all that the object of ``unit`` depends on, except for the headers in its manifest."""
    # Headers that are generated for one unit are few, so the key has them. A view's name has a hash of its content.
    own = [flag[2:] for flag in unit.flags if flag.startswith("-Igenerated/units/")]
    headers = sorted(files_in(work, [*own, *map(str, unit.narrow)]))
    contents = [[name, files.hash(name)] for name in (str(unit.source), *headers)]
    program = Path(shutil.which(compiler.compiler) or compiler.compiler).stat()  # may be a script that changes
    described = [_MANIFESTS, compiler.description, program.st_size, program.st_mtime_ns]
    return hashlib.sha256(json.dumps([described, command_of(unit, compiler), contents]).encode()).hexdigest()


def _bring(stored: Path, target: Path, digest: str) -> bool:
    """Make ``target`` the stored object. Return whether its content has changed.

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
    partial.unlink(missing_ok=True)  # a killed process left it, perhaps as another name of an object
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
    with suppress(OSError):  # the folder has other files
        files[0].parent.rmdir()


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a key, the last used last."""
    try:
        return sorted(folder.glob("*.json"), key=_time)
    except OSError:  # another build deletes it
        return []


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
