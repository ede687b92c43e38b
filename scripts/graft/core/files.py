"""Small helpers for files: write only changed content, replace atomically, hash."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write ``content`` to ``path`` unless it is there already. Return whether it was written.

    An unchanged file keeps its modification time, so ninja does not rebuild what depends on it.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass
    write_atomically(path, data)
    return True


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to a temporary file and rename it to ``path``, so that no half-written file remains."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sha256_of_file(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def files_below(folder: Path) -> list[Path]:
    """Return every file below ``folder`` as sorted relative paths."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def remove_others(folder: Path, keep: Iterable[Path]) -> None:
    """Delete every file below ``folder`` whose relative path is not in ``keep``."""
    kept = set(keep)
    for path in files_below(folder) if folder.is_dir() else []:
        if path not in kept:
            (folder / path).unlink()


def lay_out_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make ``folder`` contain exactly ``files``, by relative path. Unchanged files keep their modification times."""
    for name, content in files.items():
        write_if_changed(folder / name, content)
    remove_others(folder, map(Path, files))


def free_bytes(folder: Path) -> int:
    """Return the free space on the file system of ``folder``, in bytes."""
    return shutil.disk_usage(folder).free
