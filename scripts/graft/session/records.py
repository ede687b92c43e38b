"""Records of loads, to read and to compare between processes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import UsageError
from ..core.extra_flags import ExtraFlags
from .loads import Load, state


class Record(NamedTuple):
    """The record of a load. Processes with the same ``hash`` run the same code.

    Args:
        name: the name of the load.
        hash: a hash of the sources, the flags and the torch.
        torch: the version of torch that it was built for.
        flags: the user's compiler flags.
        folder: the native folder.
        built: the folder of the build.
    """

    name: str
    hash: str
    torch: str
    flags: tuple[str, ...]
    folder: Path
    built: Path

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the texts of ``load_inline``, as ``Operators.save`` does. Return the path of the folder."""
        return save(self.name, folder)


def save(name: str, folder: str | os.PathLike[str]) -> Path:
    """Write the texts of the load ``name`` as a native folder. Return its path.

    Raises:
        UsageError: the folder has other files, or the load has no texts: it was unloaded, or loaded from a folder.
    """
    load = state().loads.get(name)
    if load is None:
        raise UsageError(f"{name}: no load has this name", todo="load it again")
    if load.messages is None:
        raise UsageError(f"{name}: it was loaded from a folder", todo=f"copy {load.folder}")
    saved: Path = load.messages.texts.save(os.fspath(folder))
    return saved


def record_of(load: Load) -> Record:
    """Return the record of a load."""
    extra, torch = ExtraFlags.from_settings(load.note["flags"]), load.note["base"]
    flags = (*extra.cflags, *extra.cuda_cflags, *(f"-I{path}" for path in extra.include_paths))
    settings = [load.note["settings"], load.note["libraries"]]
    content = json.dumps([sorted(contents_of(load.note).items()), flags, settings, torch])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return Record(load.name, digest, torch, flags, load.folder, load.built)


def contents_of(note: Mapping[str, Any]) -> dict[str, str]:
    """Return the hash of each file of the native folder, as its note has it."""
    (hashes,) = note["folders"].values()
    return dict(hashes)


def hashes_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the hash of each file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def files_of(load: Load) -> dict[str, bytes] | None:
    """Return the user's files that a load was built from; None if they were edited since."""
    wanted = contents_of(load.note)
    try:
        files = {name: (load.folder / name).read_bytes() for name in wanted}
    except OSError:
        return None
    return files if hashes_of(files) == wanted else None


def sources_of(load: Load) -> dict[str, bytes]:
    """Return the files that a load was built from.

    Raises:
        UsageError: the files were edited since; or the folder has settings, which may name files elsewhere.
    """
    if load.note["settings"]:
        what = f"{load.folder}: it has settings in pyproject.toml, so its operators cannot be pickled"
        raise UsageError(what, todo="call graft.load with the folder in each process")
    if (files := files_of(load)) is None:
        raise UsageError(f"{load.folder}: it was edited since it was loaded as {load.name}", todo="load it again")
    return files
