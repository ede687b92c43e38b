"""The one way to run a command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import CommandError

# For commands whose messages are read by a program.
UNTRANSLATED = {"LC_ALL": "C"}


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    echo: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` without a shell and with stdin closed; return what it printed.

    Args:
        command: program and arguments.
        cwd: the folder to run in.
        env: variables added to this process's environment.
        check: raise when the command exits with another code than 0.
        echo: print the command first.

    Raises:
        CommandError: the program is missing, or failed while ``check`` is set.
    """
    words = [str(word) for word in command]
    if echo:
        where = f" (in {cwd})" if cwd else ""
        print(f"+ {shlex.join(words)}{where}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(
            f"{words[0]}: no such program",
            cause=str(error),
            todo=f"install {words[0]} and run the same command again",
        ) from error
    if check and done.returncode != 0:
        raise CommandError(
            f"`{shlex.join(words)}` failed with exit code {done.returncode}",
            cause=done.stdout.strip()[-4000:] or "it printed nothing",
        )
    return done


def follow(command: Sequence[str | Path], read: Callable[[str], None], *, env: Mapping[str, str]) -> int:
    """Run ``command`` as ``run`` does, and hand each line that it prints to ``read`` at once; return its exit code."""
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **env},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            read(line)
    return process.returncode
