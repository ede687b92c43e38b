"""The processes of the rows. They end, with their children, when this process is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from graft.core.layout import REPOSITORY

# Seconds that an interrupted row has to end; it deletes its environments.
_PATIENCE = 180


class StoppedError(Exception):
    """The rows were interrupted."""


@dataclass(frozen=True)
class Done:
    """A finished command.

    Args:
        code: its exit code.
        seconds: how long it took.
        output: its output.
    """

    code: int
    seconds: float
    output: Sequence[str]

    @property
    def error(self) -> str:
        """The first line of the error; empty if there is none."""
        if self.code == 0:
            return ""
        errors = [line.removeprefix("error: ") for line in self.output if line.startswith("error: ")]
        others = [line for line in self.output if line.strip()]
        return (errors or others or [f"exit code {self.code}"])[-1].strip()


class Processes:
    """Runs commands of the builder, several at once if called from several threads."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def run(self, python: Path, arguments: Sequence[str | Path], write: Callable[[str], object]) -> Done:
        """Run a verb of the builder with ``python``. Each line of output is passed to ``write``.

        Raises:
            StoppedError: ``stop`` was called.
        """
        start, output = time.perf_counter(), []
        with subprocess.Popen(
            [python, "scripts/environment.py", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process:
            self._running.add(process)
            try:
                if self._is_stopped:
                    _end([process])
                assert process.stdout is not None
                for line in process.stdout:
                    write(line)
                    output.append(line)
            except BaseException:
                _end([process])
                raise
            finally:
                process.wait()
                self._running.discard(process)
        if self._is_stopped:
            raise StoppedError
        return Done(process.returncode, time.perf_counter() - start, output)

    def stop(self) -> None:
        """End all running commands, and start no more."""
        self._is_stopped = True
        _end(list(self._running))


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Interrupt processes and their children like Ctrl-C, and kill those that do not end."""
    for number, patience in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, 1)):
        left = [process for process in processes if process.poll() is None]
        for process in left:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + patience
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(0.1)
