"""Build the operators of an editable install again if their sources were edited since. Written by `pip install -e`."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Beside this file: the command that builds, which no build changes, and how the last build ended. A build deletes the
# latter first and writes it last, so one that is killed leaves none.
COMMAND, STATE = "command.json", "edited.json"

_READ = (".yaml", ".cpp", ".h", ".hpp", ".inl", ".inc", ".cu", ".cuh", ".py", ".pyi", ".rst")


def state_of(folders: "list[str]", read: "list[str]", others: "list[str]") -> "dict[str, list[int]]":
    """Return the size and time of each file that builds read in ``folders``, where they read the folders ``read``, and
    of the ``others``.
    """
    paths = list(others)
    for folder in folders:
        for parent, names, files in os.walk(folder, followlinks=True):
            names[:] = [name for name in names if name != "__pycache__" and (parent != folder or name in read)]
            paths += [os.path.join(parent, name) for name in files if name.endswith(_READ)]
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = [status.st_size, status.st_mtime_ns]
        except OSError:
            found[path] = []
    return found


@contextmanager
def locked(folder: str, busy: str) -> "Iterator[tuple[int, bool]]":
    """Hold the lock on ``folder``. While another process holds it, print ``busy`` and wait. Yields the descriptor of
    the lock, and whether this process waited.

    The kernel releases it when the processes that have the descriptor have ended, for whatever reason.
    """
    descriptor, has_waited = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):  # this file system has no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.stderr.write(f"{busy}\n")
                has_waited = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor, has_waited
    finally:
        with suppress(OSError):  # a process that another thread forked meanwhile has the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def build_again(folder: str, name: str) -> None:
    """Build what was edited. Of several processes one builds, and the others wait for it.

    Args:
        folder: the folder of this file.
        name: the name of the package, for messages.

    Raises:
        ValueError: the errors of the build.
    """
    if os.environ.get("GRAFT_EDITABLE_REBUILD") == "0" or _errors(folder) == "":
        return
    busy = f"{name}: another process is building what was edited; waiting for it to end"
    with locked(os.path.dirname(folder), busy) as (lock, has_waited):
        errors = _errors(folder)
        # A build that failed before may succeed now, for example on a disk that is no longer full.
        if errors is None or (errors and not has_waited):
            sys.stderr.write(f"{name}: building what was edited ...\n")
            errors = _build(os.path.join(folder, COMMAND), lock)
    if errors:
        raise ValueError(errors)


def _errors(folder: str) -> "str | None":
    """Return the errors of the last build of the sources as they are now; None if there was none, or it was killed."""
    try:
        with open(os.path.join(folder, STATE), encoding="utf-8") as file:
            state = json.load(file)
        return state["errors"] if state_of(*state["read"]) == state["files"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _build(path: str, lock: int) -> str:
    """Run the command in the file ``path``. Return its errors. It holds the lock, too, if this process is killed."""
    # The builder may import torch, which must not come back here.
    env = {**os.environ, "GRAFT_EDITABLE_REBUILD": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
        env["GRAFT_HOME"] = given["home"]
        done = subprocess.run(
            given["command"],
            cwd=os.path.dirname(path),  # the user's may have a folder graft
            env=env,
            pass_fds=[lock],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{path}: {error}; `pip install -e` with the project's folder writes it again"
    if done.returncode == 0:
        return ""
    said = done.stdout.decode("utf-8", "replace").strip() or f"the builder ended with exit code {done.returncode}"
    return said.partition("error: ")[2] or said
