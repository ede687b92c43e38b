"""Run commands."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import CommandError
from .wording import quoted

# From Linux's <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1

# Variables that change what compilers, linkers, nvcc and Python do. No build may depend on them: no command gets them.
_UNSET = re.compile(
    r"CPATH|\w+_INCLUDE_PATH|LIBRARY_PATH|COMPILER_PATH|GCC_EXEC_PREFIX|LD_RUN_PATH|SOURCE_DATE_EPOCH"
    r"|DEPENDENCIES_OUTPUT|SUNPRO_DEPENDENCIES|NVCC_\w+|PYTHON(?!PATH$|UTF8$|PYCACHEPREFIX$|S?$)\w+"
)

# For commands whose messages a program parses.
UNTRANSLATED = {"LC_ALL": "C"}


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` without a shell, with ``env`` added to this process's environment. Return its result with the
    output.

    Raises:
        CommandError: the program was not found, or failed and ``check`` is set.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=environment(env),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(
            f"{words[0]}: program not found",
            cause=str(error),
            todo=f"install {words[0]} and run the same command again",
        ) from error
    if check and done.returncode != 0:
        raise CommandError(
            f"`{shlex.join(words)}` failed with exit code {done.returncode}",
            cause=quoted(done.stdout.strip()[-4000:]) or "it printed nothing",
        )
    return done


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables of this process that a build may depend on, and ``more``. A preloaded sanitizer
    is left out: it is not meant for compilers.
    """
    kept = {name: value for name, value in os.environ.items() if not _UNSET.fullmatch(name)}
    if "libasan" in kept.get("LD_PRELOAD", ""):
        del kept["LD_PRELOAD"]
    return kept | dict(more or {})


def python_path(*first: Path) -> str:
    """Return a ``PYTHONPATH`` for another process to find the builder: ``first``, then the path of this process.

    A build frontend may have put the builder on the path of this process alone.
    """
    return os.pathsep.join(dict.fromkeys(str(path) for path in (*first, *sys.path) if str(path)))


def end_with_parent() -> None:
    """Ask Linux to send SIGTERM when the thread that started this process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def follow(
    command: Sequence[str | Path],
    read: Callable[[str], None],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str],
    watch: Callable[[], bool | None] = lambda: None,
    held: Sequence[int] = (),
) -> int:
    """Run ``command`` like ``run``, and pass each line of output to ``read`` at once. Return the exit code.

    ``watch`` is called several times a second, to show progress. If it returns True, the command is ended. If this
    process is killed, the command is ended, too: a compiler must not write an object into the next build. If both are
    killed, processes that the command has started keep the locks ``held``.
    """
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=environment(env),
        preexec_fn=end_with_parent,
        pass_fds=held,
    ) as process:
        is_over = threading.Event()

        def keep_watch() -> None:
            while not is_over.wait(0.2):
                if watch():
                    process.terminate()
                    break

        watcher = threading.Thread(target=keep_watch, daemon=True)
        watcher.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                read(line)
        except BaseException:  # Ctrl-C, which a terminal sends to the command, too, but a notebook does not
            process.terminate()
            raise
        finally:
            is_over.set()
    return process.returncode
