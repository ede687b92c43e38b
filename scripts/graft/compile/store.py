"""Objects that earlier builds compiled: of other environments, native folders and releases of PyTorch.

The compiler, its flags, the source and the headers that it reads decide about an object. All but the headers are its
key; it is used again if they have the contents of then. ccache works like this, too, with a process for each source.
Here the headers are read once for all sources, and nothing is added to what must be compiled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

from ..core.files import files_below, write_atomically
from ..inputs.toolchain import Toolchain
from .contents import Hashes, is_named, written
from .cuda import Nvcc
from .units import Unit

# The suffix of a stored object that was put beside its target.
STORED = ".stored"
# Of a source, so many objects with other headers are kept.
_STATES = 8
# Above this size, what was not used for longest is deleted; in bytes.
_LIMIT = 2_000_000_000


class Store:
    """The objects in ``folder``, for builds in the folder ``work``.

    Args:
        hashes: the hashes of files in ``work``.
        headers: the names of the headers that sources find before others.
    """

    def __init__(self, folder: Path, work: Path, hashes: Hashes, headers: Set[str]) -> None:
        self._folder = folder
        self._work = work
        self._hashes = hashes
        self._headers = headers

    def key(self, unit: Unit, compiler: Toolchain | Nvcc) -> str:
        """Return a hash of what decides about the object of ``unit``, except for the headers that it reads."""
        # Those of a unit are few. Views have their content in their name.
        own = [flag[2:] for flag in unit.flags if flag.startswith("-Igenerated/units/")]
        headers = sorted(written(self._work, [*own, *map(str, unit.narrow)]))
        contents = [[name, self._hashes[name]] for name in (str(unit.source), *headers)]
        command = [compiler.compiler, *compiler.flags, *unit.flags, *map(str, unit.narrow)]
        program = Path(shutil.which(compiler.compiler) or compiler.compiler).stat()  # it may be a script
        described = [compiler.description, program.st_size, program.st_mtime_ns]
        return _digest(json.dumps([described, command, contents]))

    def offer(self, keys: Mapping[Unit, str]) -> set[Unit]:
        """Put stored objects of units beside their targets. Return the units for which there is one."""
        for path in (self._work / "objects").rglob(f"*{STORED}"):  # of a build that was killed
            path.unlink()
        return {unit for unit, key in keys.items() if self._offer(unit, key)}

    def _offer(self, unit: Unit, key: str) -> bool:
        for path in self._folder.glob(f"{key}/*"):
            with suppress(OSError, ValueError, KeyError), path.open("rb") as file:  # another build may delete it
                entry = json.loads(file.readline())
                if path.name == self._state(entry["inputs"]) and entry["object"] == _digest(data := file.read()):
                    write_atomically(self._work / f"{unit.target}.d", _depfile([str(unit.target), *entry["inputs"]]))
                    write_atomically(self._work / f"{unit.target}{STORED}", data)
                    os.utime(path)
                    return True
        return False

    def keep(self, keys: Mapping[Unit, str], inputs: Mapping[str, list[str]]) -> None:
        """Store the objects of units, if they were compiled. ``inputs`` are the files that each object depends on."""
        with suppress(OSError):  # the disk is full, or another build deletes what this one is about to
            for unit, key in keys.items():
                self._keep(unit, key, inputs.get(str(unit.target), []))
            self._prune()

    def _keep(self, unit: Unit, key: str, read: Sequence[str]) -> None:
        target = self._work / unit.target
        # A precompiled header is large and soon another one. An object without inputs may be half of one.
        if unit.needed or target.suffix != ".o" or not target.is_file() or not read:
            return
        # What such a source tests for may exist elsewhere.
        if not any(b"__has_include" in (self._work / name).read_bytes() for name in read if name.startswith("src/")):
            data = target.read_bytes()
            head = json.dumps({"object": _digest(data), "inputs": read})
            write_atomically(self._folder / key / self._state(read), head.encode() + b"\n" + data)
            for path in sorted((self._folder / key).iterdir(), key=lambda path: path.stat().st_mtime)[:-_STATES]:
                path.unlink()

    def _prune(self) -> None:
        """Delete what was not used for longest, if the store is too large."""
        files = {name: (self._folder / name).stat() for name in files_below(self._folder)}
        size = sum(stat.st_size for stat in files.values())
        for name in sorted(files, key=lambda name: files[name].st_mtime):
            if size <= _LIMIT:
                break
            (self._folder / name).unlink(missing_ok=True)
            size -= files[name].st_size
            with suppress(OSError):  # there are others
                (self._folder / name).parent.rmdir()

    def _state(self, inputs: Iterable[str]) -> str:
        states = ((name, self._hashes[name], is_named(name, self._headers)) for name in sorted(inputs))
        return _digest("".join(f"{name}\0{hash_}\0{is_hidden}\n" for name, hash_, is_hidden in states))


def _depfile(names: Iterable[str]) -> str:
    """Return the text from which ninja learns that the first of the files ``names`` depends on the others."""
    target, *inputs = (re.sub(r"([\\ #])", r"\\\1", name).replace("$", "$$") for name in names)
    return f"{target}: {' '.join(inputs)}\n"


def _digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
