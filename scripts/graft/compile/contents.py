"""The contents of the files that compilers read. ninja compares times, which go back with the clock, and which packages
and copies of files keep. So before ninja runs, objects whose inputs have other contents are deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.files import write_atomically
from ..core.process import run

# Files with these prefixes are never changed in place.
_BASE = "../base/"
# The folders of what a build writes for compilers.
_WRITTEN = ("src", "generated/include", "generated/units", "operators", "fixed", "views", "preambles")


class Contents:
    """What the objects in the folder ``work`` were compiled from: the hash of each file, by its path from there."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._note = work / "objects/contents.json"
        note = {}
        with suppress(OSError, ValueError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
        self._read: dict[str, str] = note.get("read", {})
        # The headers in no folder of the build: the system's, and what a source includes by its path.
        self._outside: list[str] = note.get("outside", [])
        # A hash of those that the last build read; empty if it was not completed.
        self.outside: str = note.get("hash", "")

    def are_as_read(self) -> bool:
        """Return whether the last build was completed, and the headers elsewhere are those that it read."""
        return self.outside != "" and all(self._hash(name) == self._read[name] for name in self._outside)

    @contextmanager
    def compared(self, ninja: Path, linked: Path, targets: Iterable[Path]) -> Iterator[None]:
        """Delete the objects whose inputs have changed. Note the inputs of ``targets``, which the body compiles.

        ``ninja`` is the program, and ``linked`` the folder of libraries.
        """
        inputs = self._inputs(ninja)
        names = {name for found in inputs.values() for name in found} | set(self._written())
        now = {name: self._hash(name) for name in names}
        changed = {name for name, hash_ in now.items() if self._read.get(name, hash_) != hash_}
        stale = [target for target, found in inputs.items() if not changed.isdisjoint(found)]
        for target in stale:
            (self._work / target).unlink(missing_ok=True)
        if stale or not self.outside:  # a library may be older than its objects, whatever their times say
            for library in (self._work / linked).rglob("*.so"):
                library.unlink()
        # A build that is killed leaves this.
        self._save(now, self._outside, "")
        try:
            yield
        except Exception:  # what was delivered before is still what the headers elsewhere gave
            self._save(now | {name: self._read[name] for name in self._outside}, self._outside, self.outside)
            raise
        inputs, made = self._inputs(ninja), set(map(str, targets))
        read = {name for target, found in inputs.items() if target in made for name in found}
        now |= {name: self._hash(name) for name in read - now.keys()}
        outside = {name for name in read if name.startswith(("/", ".."))}
        hash_ = hashlib.sha256("".join(sorted({now[name] for name in outside})).encode()).hexdigest()
        # Objects that this build did not need may be needed by the next.
        self._save(now, sorted({*outside, *self._outside}), hash_)

    def _save(self, read: dict[str, str], outside: list[str], hash_: str) -> None:
        read |= {name: self._hash(name) for name in outside if name not in read}
        write_atomically(self._note, json.dumps({"read": read, "outside": outside, "hash": hash_}))

    def _inputs(self, ninja: Path) -> dict[str, set[str]]:
        """Return what each object was compiled from, according to the compiler, without the base's headers."""
        found: dict[str, set[str]] = {}
        inputs: set[str] = set()
        for line in run([ninja, "-C", self._work, "-t", "deps"]).stdout.splitlines():
            if not line.startswith(" "):
                inputs = found.setdefault(line.partition(": #deps ")[0], set())
            elif not line.startswith(_BASE, 4):
                inputs.add(os.path.normpath(line[4:]))
        return found

    def _written(self) -> Iterator[str]:
        for folder in _WRITTEN:
            for parent, _, names in os.walk(self._work / folder, followlinks=True):
                yield from (os.path.relpath(Path(parent, name), self._work) for name in names)

    def _hash(self, name: str) -> str:
        try:
            return hashlib.sha256((self._work / name).read_bytes()).hexdigest()
        except OSError:
            return ""
