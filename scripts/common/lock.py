"""One build at a time in one repository."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .console import say


@contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Hold the lock on ``folder``. While another build holds it, say so and wait.

    The lock goes with the process that holds it, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"another build runs here (process {file.read().strip() or 'unknown'}); waiting for it to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
