"""Locks: one build at a time in one repository, and similar."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .console import say


@contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Hold the lock on ``folder``. If another build holds it, print a message and wait.

    The lock is released when the process ends, for whatever reason.
    """
    with file_lock(folder / "lock", "another build is running here"):
        yield


@contextmanager
def file_lock(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock on the file ``path``, which is created if needed. While another process holds it, print ``busy``,
    unless it is empty, and wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        take(file, busy)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def take(file: IO[str], busy: str, how: int = fcntl.LOCK_EX) -> None:
    """Lock an open file. While another process holds it, print ``busy``, with that process's id if the file has it, and
    wait.
    """
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read().strip()
        if busy:
            say(f"{busy}{f' (process {process})' if process else ''}; waiting for it to end")
        fcntl.flock(file, how)
