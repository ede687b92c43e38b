"""The contents of the files that compilers read. ninja compares times, which go back with the clock, and which packages
and copies of files keep. So before ninja runs, objects whose inputs have other contents are deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.files import write_atomically
from ..core.process import run

# Files with these prefixes are never changed in place.
_BASE = "../base/"
# The folders of what a build writes for compilers.
_WRITTEN = ("src", "generated/include", "generated/units", "operators", "fixed", "views", "preambles")


class Hashes(dict[str, str]):
    """The sha256 of each file, by its path from the folder ``work``, read once; empty if it cannot be read."""

    def __init__(self, work: Path) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, name: str) -> str:
        with suppress(OSError):
            return self.setdefault(name, hashlib.sha256((self._work / name).read_bytes()).hexdigest())
        return self.setdefault(name, "")


class Contents:
    """What the objects in the folder ``work`` were compiled from: the hash of each file, by its path from there."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._note = work / "objects/contents.json"
        note = {}
        with suppress(OSError, ValueError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
        self._read: dict[str, str] = note.get("read", {})
        # A hash of the command and the source of each object.
        self._keys: dict[str, str] = note.get("keys", {})
        # The names of the headers that a build wrote; a new one may hide a header that an object was compiled from.
        self._names: set[str] = set(note.get("names", []))
        # The headers in no folder of the build: the system's, and what a source includes by its path.
        self._outside: list[str] = note.get("outside", [])
        # A hash of those that the last build read; empty if it was not completed.
        self.outside: str = note.get("hash", "")
        self.hashes = Hashes(work)

    def are_as_read(self) -> bool:
        """Return whether the last build was completed, and the headers elsewhere are those that it read."""
        now = Hashes(self._work)
        return self.outside != "" and all(now[name] == self._read[name] for name in self._outside)

    @contextmanager
    def compared(self, ninja: Path, linked: Path, keys: Mapping[str, str], headers: Set[str]) -> Iterator[None]:
        """Delete the objects whose inputs have changed. Note the inputs of those that the body compiles.

        Args:
            ninja: the program.
            linked: the folder of libraries.
            keys: what decides about each object, except for the headers that it reads.
            headers: the names of the headers that sources find before others.
        """
        inputs = self.inputs(ninja)
        names = {name for found in inputs.values() for name in found} | set(written(self._work, _WRITTEN))
        now = self._hashes_of(names)
        changed = {name for name, hash_ in now.items() if self._read.get(name, hash_) != hash_}
        new = headers - self._names
        changed |= {name for found in inputs.values() for name in found if new and is_named(name, new)}
        stale = [target for target, found in inputs.items() if not changed.isdisjoint(found)]
        stale += [target for target, key in keys.items() if self._keys.get(target) != key]
        for target in stale:
            (self._work / target).unlink(missing_ok=True)
        if stale or not self.outside:  # a library may be older than its objects, whatever their times say
            for library in (self._work / linked).rglob("*.so"):
                library.unlink()
        # Objects that this build does not need may be needed by the next.
        self._keys |= keys
        self._names = set(headers)
        # A build that is killed leaves this.
        self._save(now, self._outside, "")
        try:
            yield
        except Exception:  # what was delivered before is still what the headers elsewhere gave
            self._save(now | {name: self._read[name] for name in self._outside}, self._outside, self.outside)
            raise
        inputs = self.inputs(ninja)
        read = {name for target, found in inputs.items() if target in keys for name in found}
        now |= self._hashes_of(read)
        outside = {name for name in read if name.startswith(("/", "..")) and not name.startswith(_BASE)}
        hash_ = hashlib.sha256("".join(sorted({now[name] for name in outside})).encode()).hexdigest()
        self._save(now, sorted({*outside, *self._outside}), hash_)

    def inputs(self, ninja: Path) -> dict[str, list[str]]:
        """Return what each object was compiled from, according to the compiler, if ninja has a valid record of it."""
        found: dict[str, list[str]] = {}
        inputs: list[str] = []
        for line in run([ninja, "-C", self._work, "-t", "deps"]).stdout.splitlines():
            if line.endswith("(VALID)"):
                inputs = found.setdefault(line.partition(": #deps ")[0], [])
            elif not line.startswith(" "):  # of no file, or of one that is gone or another
                inputs = []
            else:
                inputs.append(os.path.normpath(line[4:]))
        return found

    def _hashes_of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the hashes of files that may be changed in place."""
        return {name: self.hashes[name] for name in names if not name.startswith(_BASE)}

    def _save(self, read: Mapping[str, str], outside: list[str], hash_: str) -> None:
        noted = {**read, **self._hashes_of(name for name in outside if name not in read)}
        note = {"read": noted, "keys": self._keys, "names": sorted(self._names), "outside": outside, "hash": hash_}
        write_atomically(self._note, json.dumps(note))


def header_names(work: Path, includes: Sequence[str]) -> set[str]:
    """Return the names by which sources include the headers that a build writes into the folders ``includes``.

    Args:
        work: the work folder.
        includes: relative to it; the first has the native folder's headers, which sources include by any part of their
            path: a name in quotes is looked for beside the source first.
    """
    own, *others = (folder for folder in includes if not folder.startswith(_BASE))
    names = {os.path.relpath(name, folder) for folder in others for name in written(work, [folder])}
    return names.union(*(_ends(os.path.relpath(name, own)) for name in written(work, [own])))


def is_named(path: str, names: Set[str]) -> bool:
    """Return whether one of ``names`` could mean ``path``. If so, another header may hide this one; what an object was
    compiled from does not tell which headers were not there.
    """
    return not names.isdisjoint(_ends(path))


def _ends(path: str) -> list[str]:
    """Return ``path`` relative to each folder above it: ``a/b.h`` and ``b.h`` for ``a/b.h``."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


def written(work: Path, folders: Iterable[str]) -> Iterator[str]:
    """Yield the files below ``folders``, relative to ``work``."""
    for folder in folders:
        for parent, _, names in os.walk(work / folder, followlinks=True):
            yield from (os.path.relpath(Path(parent, name), work) for name in names)
