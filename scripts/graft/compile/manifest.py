"""Manifests of what a compiler looked for: files that it read, and files that it would have read if they existed.

ccache's manifests list only the files that were read. These also list absent files: headers that would hide one that
was read, and those that ``__has_include`` asked for. So an object is reused exactly as long as a compiler would find
the same files. Files are compared by content, never by time: clocks go back, and packages and copies keep old times.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.files import write_atomically

# The hash of a file that cannot be read.
ABSENT = ""

# The base. Its files are never changed in place.
_BASE = "../base/"

# A file that a text names without ``#include``: in group 1, 2 or 3; in no group if the name is computed.
_ASKS = re.compile(
    rb"""__has_include(?:_next)?[ \t]*\([ \t]*(?:["<]([^">\n]{1,250})[">])?"""
    rb"""|\.incbin\b(?:[ \t]*\\?"(/[^"\\\n]{1,250}))?"""
    rb"""|^[ \t]*\#[ \t]*embed\b[ \t]*(?:["<]([^">\n]{1,250})[">])?"""
    rb"""|\b__TIMESTAMP__\b""",
    re.M,
)
_MAY_ASK = (b"__has_include", b".incbin", b"embed", b"__TIMESTAMP__")
_QUOTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]{1,250})"', re.M)


@dataclass(frozen=True)
class Manifest:
    """The files that an object was compiled from.

    Args:
        looked: the hash of each file that the compiler looked for, by its path from the work folder.
        named: by file name of ``looked``, the headers of that name that the build wrote, in any folder. A new one may
            hide a header that was read.
        is_whole: False if a source computes the name of a file, so that it may depend on unknown files.
    """

    looked: Mapping[str, str]
    named: Mapping[str, Sequence[str]]
    is_whole: bool = True

    def holds(self, files: InputFiles) -> bool:
        """Return whether a compiler would find the same files."""
        return files.named(self.looked) == self.named and files.are(self.looked)


class InputFiles:
    """The files that compilers find from the folder ``work``, each read once.

    Args:
        work: the work folder.
        written: the folders of the headers that a build writes, which are searched before others.
        searched: the other folders of headers, in the compiler's order.
        installed: other folders of headers that no user writes: Python's, the CUDA toolkit's.
        given: the folders of ``searched`` that the user names, whose files may change.
    """

    def __init__(
        self,
        work: Path,
        written: Sequence[str] = (),
        searched: Sequence[str] = (),
        installed: Sequence[str] = (),
        given: Sequence[str] = (),
    ) -> None:
        self._work = work
        self._searched = searched
        others = (each for folder in installed for each in (folder, os.path.realpath(folder)))
        compilers = (folder for folder in searched if folder not in given)
        self._installed = (_BASE, *(f"{folder}/" for folder in (*compilers, *others)))
        self._began = 0
        self._hashes: dict[str, str] = {}
        self._asked: dict[str, list[str | None]] = {}
        self._named: dict[str, list[str]] = {}
        for name in sorted(files_in(work, written)):
            self._named.setdefault(_last(name), []).append(name)

    def hash(self, name: str) -> str:
        """Return a hash of a file, by its path from the work folder."""
        if name not in self._hashes:
            self._read(name)
        return self._hashes[name]

    def are(self, hashes: Mapping[str, str]) -> bool:
        """Return whether files have these hashes."""
        return all(self.hash(name) == hash_ for name, hash_ in hashes.items())

    def named(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the headers that the build wrote under the file names of ``names``, by file name."""
        return {name: self._named[name] for name in map(_last, names) if name in self._named}

    def manifest(self, read: Sequence[str]) -> tuple[Manifest, list[str]]:
        """Return the manifest of a compilation that ``read`` files, and files that may have changed since ``begin``."""
        changed = self.changed(read)
        looked, is_whole = set(read), True
        for name in read:
            self.hash(name)
            looked.update(self._hiding(name))
            for asked in self._asked.get(name, ()):
                if asked is not None:
                    looked.update(_below(folder, asked) for folder in (name.rpartition("/")[0], *self._searched))
                elif not name.startswith(self._installed):
                    is_whole = False
        changed += self.changed(name for name in looked.difference(read) if (self._work / name).exists())
        return Manifest({name: self.hash(name) for name in sorted(looked)}, self.named(looked), is_whole), changed

    def begin(self) -> None:
        """Record the file system's time, before files are read and compilers are started."""
        mark = self._work / "objects/began"
        write_atomically(mark, "")
        self._began = mark.stat().st_mtime_ns

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return the files outside of the work folder that may have changed since ``begin``, and read them again.

        A file's change time, and a link's, are compared: programs can set modification times, but not change times.
        """
        changed = []
        for name in filter(is_outside, names):
            try:
                path = self._work / name
                is_new = max(path.stat().st_ctime_ns, path.lstat().st_ctime_ns) >= self._began
            except OSError:
                is_new = self._hashes.get(name) != ABSENT
            if is_new:
                before = self._hashes.pop(name, None)
                if before is None or self.hash(name) != before:
                    changed.append(name)
        return changed

    def read(self) -> list[str]:
        """Return the files that were read so far."""
        return list(self._hashes)

    def _read(self, name: str) -> None:
        self._hashes[name] = ABSENT
        try:
            data = (self._work / name).read_bytes()
        except OSError:
            return
        self._hashes[name] = hashlib.sha256(data).hexdigest()[:32]
        asked: list[str | None] = []
        if any(word in data for word in _MAY_ASK):
            found = (next(filter(None, match.groups()), None) for match in _ASKS.finditer(data))
            asked += [os.fsdecode(each) if each else None for each in found]
        if is_outside(name) and not name.startswith(self._installed):  # the compiler looks beside the file first
            asked += map(os.fsdecode, _QUOTED.findall(data))
        if asked:
            self._asked[name] = asked

    def _hiding(self, name: str) -> Iterator[str]:
        """Yield the paths in searched folders where the compiler looked for a header before it found ``name``."""
        for number, folder in enumerate(self._searched):
            if name.startswith(f"{folder}/"):
                yield from (before + name.removeprefix(folder) for before in self._searched[:number])
                return


def _below(folder: str, name: str) -> str:
    return name if name.startswith("/") else f"{folder}/{name}"


def _last(name: str) -> str:
    """Return a path without its folders."""
    return name.rpartition("/")[2]


def is_outside(name: str) -> bool:
    """Return whether a path from the work folder leads out of it."""
    return name.startswith(("/", ".."))


def files_in(work: Path, folders: Iterable[str]) -> Iterator[str]:
    """Yield the files below ``folders``, relative to ``work``."""
    for folder in folders:
        for parent, _, names in os.walk(work / folder, followlinks=True):
            yield from (os.path.relpath(Path(parent, name), work) for name in names)


@dataclass(frozen=True)
class Outside:
    """The files outside of a complete build that compilers read: the system's headers, and files that sources include
    or embed by path. No snapshot has these files.

    Args:
        hashes: the hash of each file, by its path from the work folder.
        made: a hash of the libraries, if sources compute the names of files.
    """

    hashes: Mapping[str, str]
    made: str = ""

    @classmethod
    def of(cls, manifests: Iterable[Manifest]) -> Outside:
        """Collect the files outside of the build from the manifests of its objects."""
        found: dict[str, str] = {}
        for each in manifests:
            found |= {name: hash_ for name, hash_ in each.looked.items() if is_outside(name)}
        return cls({name: found[name] for name in sorted(found) if not name.startswith(_BASE)})

    @property
    def contents(self) -> str:
        """A hash of this that does not depend on the folders of the files."""
        return _digest([self.made, sorted({(_last(name), hash_) for name, hash_ in self.hashes.items()})])

    def is_as_read(self, work: Path) -> bool:
        """Return whether the files are unchanged, and all of them are known."""
        return not self.made and InputFiles(work).are(self.hashes)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def inputs_of(depfile: Path) -> list[str]:
    """Return the files that a compiler read, from the dependency file that it wrote for make; none without a file."""
    try:
        text = depfile.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    _, _, listed = text.replace("\\\n", " ").partition(": ")
    words = re.findall(r"(?:\\[ #\\]|\$\$|[^\s\\]|\\(?![ #\\]))+", listed.partition("\n")[0])
    names = [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in words]
    return list(dict.fromkeys(name if name.startswith("/") else os.path.normpath(name) for name in names))
