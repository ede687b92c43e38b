"""Build, in a process of its own, what another process loads.

The builder holds the lock of the build. The user's process must not: a worker that it forks would keep the lock.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from ..compile.idle import Work, do, postponing
from ..core import errors
from ..core.bugs import expected
from ..core.console import heard_by, say
from ..core.errors import BuildError, CommandError, GraftError, MissingError
from ..core.layout import PACKAGES
from ..core.process import end_with_parent, environment, python_path
from ..inputs.snapshot import Snapshot
from .building import Wanted, build
from .progress import ipython

# Decides whether to build where the argument ``build`` is not given: 0 for never, 1 for unpickling, too.
VARIABLE = "GRAFT_BUILD"


def build_elsewhere(what: Wanted, snapshot: Snapshot) -> Path:
    """Build a snapshot in a process of its own, and report its messages in this one. Return the folder of the build.

    Raises:
        GraftError: the build failed.
    """
    end_idle()
    is_live = ipython() is not None
    with tempfile.TemporaryFile() as said:
        process = _started(said)
        assert process.stdin and process.stdout
        try:
            with suppress(BrokenPipeError):  # it was killed, which is reported below
                process.stdin.write(pickle.dumps((os.getpid(), what, snapshot, is_live)))
                process.stdin.close()
            for kind, *values in _messages(process.stdout):
                if kind == "built":
                    if is_live:
                        _idle.append((os.getpid(), process))
                    else:
                        with process:  # waits for its end
                            pass
                    return Path(values[0])
                if kind == "failed":
                    raise _raised(*values)
                say(*values)
        except BaseException:  # Ctrl-C, which a terminal sends to that process, too, but a notebook does not
            with process:  # closes the pipes, too
                process.terminate()
            raise
        process.wait()
        said.seek(0)
        raise _ended(process.returncode, said.read().decode("utf-8", "replace"))


# Processes that have built, and precompile what the next edit needs, each with the process that started it.
_idle: list[tuple[int, subprocess.Popen[bytes]]] = []


def end_idle() -> None:
    """End what precompiles: a build, or the end of this process, comes first."""
    while _idle:
        owner, process = _idle.pop()
        if owner == os.getpid():  # else this one is its fork
            with process:
                process.terminate()


atexit.register(end_idle)


def _started(said: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the process that builds. Its output, except for messages, goes into the file ``said``."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=PACKAGES,  # the user's folder may contain one named graft
        env=environment({"PYTHONPATH": python_path(PACKAGES)}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
    )


def required(what: Wanted) -> MissingError:
    """Return the error for operators that are not built while building is off."""
    return MissingError(
        f"{what.name}: it is not built for torch {what.environment.version}, this processor and these flags, and this "
        "process may not build",
        cause=f"build=False, or {VARIABLE}={os.environ[VARIABLE]}" if VARIABLE in os.environ else "build=False",
        todo=f'run `graft.build("{what.folder}")` where a compiler is, with this GRAFT_HOME, or set {VARIABLE}=1',
    )


def _messages(pipe: IO[bytes]) -> Iterator[tuple[Any, ...]]:
    while True:
        try:
            yield pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError):  # it was killed
            return


def _raised(kind: str, what: str, cause: str, todo: str, findings: tuple[errors.Finding, ...]) -> GraftError:
    """Return the error that the build ended with."""
    found = getattr(errors, kind, GraftError)
    more = {"findings": findings} if issubclass(found, BuildError) else {}
    error: GraftError = found(what, cause=cause, todo=todo, **more)
    return error


def _ended(code: int, said: str) -> CommandError:
    """Return the error about a process that ended without an answer."""
    if code == -signal.SIGKILL:
        return CommandError(
            "the process that builds was killed",
            cause="the machine, or the container, probably had too little memory for so many compilers",
            todo="load it again, which continues where it stopped; MAX_JOBS=1 runs one compiler at a time",
        )
    return CommandError(
        f"the process that builds ended with exit code {code}", cause=said.strip()[-2000:], todo="load it again"
    )


def main() -> None:
    """Read a request from standard input, build it, and write messages to standard output."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    parent, what, snapshot, is_live = pickle.load(sys.stdin.buffer)
    if os.getppid() != parent:
        return

    def answer(*values: Any) -> None:
        answers.write(pickle.dumps(values))
        answers.flush()

    works: list[Work] = []
    left = postponing() if is_live else nullcontext(works)
    with heard_by(lambda level, text: answer("said", text, level)), left as works:
        try:
            answer("built", str(build(what, snapshot)))
        except Exception as error:
            shown = expected(error)
            findings = shown.findings if isinstance(shown, BuildError) else ()
            answer("failed", type(shown).__name__, shown.what, shown.cause, shown.todo, findings)
    do(works)


if __name__ == "__main__":
    main()
