"""Base wheels and their unpacked trees, shared by all builds; a folder for each sha256. Complete files never change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from ..core.files import delete, file_lock, files_below
from ..core.layout import store

# The mode of files. Folders stay writable, so that `rm -r` works.
_READ_ONLY = 0o444


def bases() -> Path:
    """Return the folder of base wheels and their unpacked trees."""
    return store() / "bases"


def wheel_with(sha256: str) -> Path | None:
    """Return the shared wheel with this hash, or None. It was verified when it was put there."""
    return next((bases() / sha256).glob("*.whl"), None) if sha256 else None


def share_wheel(wheel: Path, sha256: str) -> Path:
    """Move a verified wheel to the shared ones, unless it is there. Return its path."""
    folder = bases() / sha256
    with _lock(folder):
        if not (there := wheel_with(sha256)):
            there, partial = folder / wheel.name, folder / "wheel.partial"
            delete(partial)  # left by a build that was killed
            shutil.move(wheel, partial)  # from another file system, perhaps
            partial.chmod(_READ_ONLY)
            partial.rename(there)
    return there


def share_tree(sha256: str, unpack: Callable[[Path], None]) -> Path:
    """Return the unpacked wheel with this hash. Unless it is there, ``unpack`` writes it into a temporary folder."""
    folder = bases() / sha256
    tree, partial = folder / "tree", folder / "tree.partial"
    with _lock(folder):
        if not tree.is_dir():
            delete(partial)  # left by a build that was killed
            unpack(partial)
            for name in files_below(partial):
                (partial / name).chmod(_READ_ONLY)
            partial.rename(tree)
    return tree


def link(path: Path, target: Path) -> None:
    """Make ``path`` a link to ``target``. Delete any file or folder at ``path``."""
    if path.is_symlink() and path.readlink() == target:
        return
    delete(path)
    path.symlink_to(target)


def _lock(folder: Path) -> AbstractContextManager[None]:
    return file_lock(folder / "lock", f"another process writes into {folder}")
