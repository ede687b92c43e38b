"""`graft clean`: delete the builds, the store that all builds share, or all that Graft ever wrote."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .core.console import say
from .core.errors import UsageError
from .core.files import delete, release, require_no_link
from .core.layout import HOME, store
from .core.places import BUILDS, DEVELOPED, EDITABLE, LINKED, NATIVE, WHEEL, places
from .deliver.develop import remove_trees
from .deliver.editor import is_ours
from .options import Request

# The names of folders with builds, and of those in the store. The first pattern matches pins and source trees.
_PINS = "[0-9]*.[0-9]*.[0-9]*"
_BUILDS = (
    *(_PINS, "bugs", "bytecode", "checkouts", "environments", "grammar", "hypothesis", "inline", "loads", "package-*"),
    *("patches", "sanitized", "thin", "watches"),
)
_SHARED = (_PINS, "bases", "cuda-toolkits", "environments", "objects", "operators", "probes", "symbols")

# The user's own files, which `clean --all` lists and does not delete.
_OF_USERS = {
    WHEEL: "wheels",
    EDITABLE: "editable installs, which `pip uninstall` removes",
    NATIVE: "native folders",
}


def clean(_: Request, given: argparse.Namespace) -> None:
    """Delete the folders that the flags select. Other files beside them stay: ``GRAFT_HOME`` may be a user's folder."""
    if given.all:
        _clean_all(is_sure=given.yes)
    elif given.cache:
        _clean(store(), _SHARED, "no torch, object or environment")
    else:
        _clean(HOME, _BUILDS, "no downloads or builds")


def _clean(folder: Path, names: Sequence[str], nothing: str) -> None:
    there = _found(folder, names)
    size = _delete(there)
    say(f"deleted {size / 1e9:.1f} GB in {folder}" if there else f"nothing to do: {folder} has {nothing}")


def _clean_all(*, is_sure: bool) -> None:
    """List all folders of Graft, ask for confirmation, undo every develop, and delete the folders."""
    there = _found(store(), dict.fromkeys((*_BUILDS, *_SHARED)))
    for builds in places(BUILDS):
        is_of_checkout = builds.name == "build" and (builds.parent / "scripts/environment.py").is_file()
        there += [builds] if is_of_checkout else _found(builds, _BUILDS)
    there, developed = [*dict.fromkeys(there)], places(DEVELOPED)
    links = [path for path in places(LINKED) if is_ours(path)]
    for path in there:
        say(f"{_size([path]) / 1e9:7.2f} GB  {path}")
    for packages in developed:
        say(f"    undevelop  {packages}")
    for path in links:
        say(f"    link for editors  {path}")
    for kind, name in _OF_USERS.items():
        for path in places(kind):
            say(f"    not deleted, of your {name}: {path}")
    if not (there or developed or links):
        say("nothing to do: there is nothing of Graft's")
        return
    if not is_sure and not _is_agreed():
        raise UsageError("nothing was deleted", todo="answer y, or pass --yes")
    _require_unused(there)
    for packages in developed:
        remove_trees(packages)
    for path in links:
        path.unlink(missing_ok=True)
    say(f"deleted {_delete(there) / 1e9:.1f} GB")
    delete(store() / "places")


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    print("Delete these? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _found(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the folders with these names, without links."""
    return [path for name in names for path in sorted(folder.glob(name)) if path.is_dir() and not path.is_symlink()]


def _delete(folders: Sequence[Path]) -> int:
    """Delete folders that no other process uses, this process's environment last. Return their size in bytes."""
    _require_unused(folders)
    size = _size(folders)
    for folder in sorted(folders, key=lambda path: Path(sys.prefix).is_relative_to(path)):
        delete(folder)
    return size


def _require_unused(folders: Iterable[Path]) -> None:
    """Check that no other process uses these folders.

    Raises:
        UsageError: a process holds a lock in one of them, or one is a link.
    """
    for folder in folders:
        require_no_link(folder)
        for path in _files([folder]):
            if (path.name == "lock" or path.suffix == ".lock") and (user := _user_of(path)):
                raise UsageError(
                    f"{path.parent}: another process{user} uses what is there; nothing was deleted",
                    todo="run this command again when it has ended",
                )


def _user_of(lock: Path) -> str:
    """Return the holder of a lock, for messages; empty if it is free. First, release it if this process holds it."""
    release(lock)
    with lock.open(encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return f" {process}" if (process := file.read().strip()) else " of this machine"
        except OSError:  # this file system has no locks
            return ""
    return ""


def _size(folders: Iterable[Path]) -> int:
    """Return the size in bytes of the files below folders. A file with several hard links counts once."""
    statuses = (path.lstat() for path in _files(folders))
    return sum({(status.st_dev, status.st_ino): status.st_size for status in statuses}.values())


def _files(folders: Iterable[Path]) -> Iterable[Path]:
    for folder in folders:
        for parent, _, names in os.walk(folder):
            yield from (Path(parent, name) for name in names)
