"""Atomic writes, locks, and folders that are costly to create."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from .console import WARNING, say
from .errors import UsageError

# The file that describes the content of a folder of ``held``. It is written last, and deleted first.
STAMP = "holds.json"

# Seconds until a waiting process prints which process it waits for.
_SAID_AFTER = 5.0

# The variable with the seconds after which a process gives up waiting for another.
_TIMEOUT = "GRAFT_LOCK_TIMEOUT"

# flock's errors on a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)

# The descriptors of the files that this process has locked.
_held: list[int] = []


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write ``content`` to ``path`` unless it is there already. Return whether it was written.

    An unchanged file keeps its modification time.
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
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:  # mode x follows no link
            file.write(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def note_use(path: Path) -> None:
    """Set the time of a file or folder, to mark it as used. Ignore errors: read-only folders are never cleaned up."""
    with suppress(OSError):
        path.touch()


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if there is no such file, or it is damaged."""
    with suppress(OSError, ValueError, TypeError):
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


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


def delete(path: Path) -> None:
    """Delete a file, or a folder with all that is below it, if it exists. A link is deleted, not its target.

    If this is interrupted, a folder of ``held`` does not look complete.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        (path / STAMP).unlink(missing_ok=True)
        shutil.rmtree(path)


def require_no_link(folder: Path) -> None:
    """Check that ``folder`` is not a link, so that nothing elsewhere is written or deleted. Folders above it may be
    links: a user's home or build may be on another disk.
    """
    if folder.is_symlink():
        raise UsageError(
            f"{folder}: it is a link to {folder.readlink()}, and what is below it would be deleted",
            todo=f"delete the link: rm {shlex.quote(str(folder))}",
        )


def release(path: Path) -> None:
    """Release the locks that this process holds on a file or folder: then only others count as its users."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile, or this file system has no locks
            if descriptor.samefile(path):
                fcntl.flock(int(descriptor.name), fcntl.LOCK_UN)


def remove_others(folder: Path, keep: Iterable[Path]) -> None:
    """Delete everything below ``folder`` but the files with the relative paths ``keep``, and their folders. Links are
    deleted, not followed. The folder itself must not be a link.
    """
    require_no_link(folder)
    kept = set(keep)
    folders = {parent for name in kept for parent in name.parents}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_symlink() or not path.is_dir():
            if path.is_symlink() or path.relative_to(folder) not in kept:
                delete(path)
        elif path.relative_to(folder) not in folders:
            with suppress(OSError):  # another process wrote into it
                path.rmdir()


def lay_out_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make ``folder``, which must not be a link, contain exactly ``files``, by relative path. Unchanged files keep
    their modification times.
    """
    remove_others(folder, map(Path, files))
    for name, content in files.items():
        write_if_changed(folder / name, content)


def folder_of(place: Path, files: Mapping[str, bytes], kept: int, prefix: str = "") -> Path:
    """Return a folder below ``place`` that contains exactly ``files``, by path, and is named after their content. No
    process changes it later. Of the folders there, keep the ``kept`` that were used last.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    folder = place / f"{prefix}{digest.hexdigest()[:16]}"
    if folder.is_dir():
        note_use(folder)
        return folder
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=place, ignore_cleanup_errors=True) as partial:
        lay_out_files(Path(partial) / "made", files)
        try:
            (Path(partial) / "made").rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was first
                raise
    keep_last(place, kept)
    return folder


def keep_last(place: Path, kept: int) -> None:
    """Delete all in ``place`` but what was used last. Ignore errors: other processes delete there, too."""
    with suppress(OSError):
        there = [path for path in place.iterdir() if path.name[0] != "."]
        for old in sorted(there, key=lambda path: path.stat().st_mtime_ns)[:-kept]:
            delete(old)


def free_bytes(folder: Path) -> int:
    """Return the free space on the file system of ``folder``, in bytes."""
    return shutil.disk_usage(folder).free


def build_lock(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock on ``folder``. If another build holds it, print a message and wait.

    The lock is released when the process ends, for whatever reason.
    """
    return file_lock(folder / "lock", "another build is running here")


@contextmanager
def file_lock(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock on the file ``path``, which is created if needed. While another process holds it, wait; print
    ``busy`` after some seconds, unless it is empty.

    Raises:
        UsageError: the lock was not free within ``GRAFT_LOCK_TIMEOUT`` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        if not _has_locks(file):
            with file_lock(_beside_no_locks(path), busy):
                yield
            return
        take(file, busy)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        _held.append(file.fileno())
        try:
            yield
        finally:
            _held.remove(file.fileno())
            fcntl.flock(file, fcntl.LOCK_UN)  # a child may have the file open, too


def take(file: IO[str], busy: str, how: int = fcntl.LOCK_EX) -> None:
    """Lock an open file. While another process holds it, wait; after some seconds print ``busy``, unless it is empty,
    with that process's id if the file has it.

    Raises:
        UsageError: the lock was not free within ``GRAFT_LOCK_TIMEOUT`` seconds.
    """
    began, is_said, patience = time.monotonic(), not busy, _patience()
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = time.monotonic() - began
        if waited >= patience:
            raise UsageError(
                f"{busy or file.name}{_holder(file)}, since {waited:.0f} s",
                todo=f"end that process, or set {_TIMEOUT} to more seconds",
            )
        if not is_said and waited >= _SAID_AFTER:
            say(f"{busy}{_holder(file)}; waiting for it to end", WARNING)
            is_said = True
        time.sleep(0.02)


def try_lock(file: IO[str]) -> bool:
    """Lock an open file until it is closed. Return False if another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _has_locks(file: IO[str]) -> bool:
    """Return whether the file system supports locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def held_locks() -> Sequence[int]:
    """Return the descriptors of this process's locks. A child that inherits them keeps the locks if this is killed."""
    return tuple(_held)


def _holder(file: IO[str]) -> str:
    file.seek(0)
    process = file.read().strip()
    if process.isdecimal() and not Path(f"/proc/{process}").exists():
        return f" (process {process}, or compilers that it has left)"
    return f" (process {process})" if process else ""


def _patience() -> float:
    """Return for how many seconds to wait for another process."""
    try:
        return float(os.environ.get(_TIMEOUT) or "inf")
    except ValueError:
        raise UsageError(f"{_TIMEOUT}={os.environ[_TIMEOUT]}: not a number", todo="set it to seconds") from None


def _beside_no_locks(path: Path) -> Path:
    """Return a file to lock instead of ``path``, whose file system has no locks. It is for this machine only."""
    folder = Path(tempfile.gettempdir()) / f"graft-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise UsageError(f"{folder}: it is not yours", todo="delete it, or set TMPDIR to another folder")
    return folder / hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Layer:
    """A part of a folder's content.

    Args:
        content: identifies the content; the folder is updated when it changes.
        add: writes the layer into the folder, also over an older version of it.
    """

    content: str
    add: Callable[[Path], None]


@contextmanager
def held(folder: Path, layers: Sequence[Layer]) -> Iterator[int]:
    """Bring ``folder`` up to date and keep it unchanged while the body runs. Yields the descriptor of the lock.

    If the first layer is unchanged, the changed ones are added; otherwise the folder is created again. Processes that
    need the same content share the lock; a process that needs other content waits for them.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a+", encoding="utf-8") as file:
        busy, is_said = f"another process uses {folder}", False
        while True:
            take(file, busy, fcntl.LOCK_SH)
            if _content(folder) == [layer.content for layer in layers]:
                break
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Retry instead of waiting for every holder to finish: another process may already have created this
                # content.
                fcntl.flock(file, fcntl.LOCK_UN)
                if not is_said:
                    say(f"{busy}; waiting for it to end")
                    is_said = True
                time.sleep(0.1)
                continue
            _bring_up_to_date(folder, layers)
        yield file.fileno()


def _bring_up_to_date(folder: Path, layers: Sequence[Layer]) -> None:
    wanted, there = [layer.content for layer in layers], _content(folder)
    if there[:1] != wanted[:1] or len(there) != len(wanted):
        delete(folder)
        folder.mkdir()
        there = []
    (folder / STAMP).unlink(missing_ok=True)
    for layer, old in zip_longest(layers, there):
        if layer.content != old:
            layer.add(folder)
    (folder / STAMP).write_text(json.dumps(wanted), encoding="utf-8")


def _content(folder: Path) -> list[str]:
    try:
        return list(json.loads((folder / STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []
