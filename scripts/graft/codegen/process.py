"""The process that runs torchgen."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..base.base import Base, torchgen_command
from ..core.errors import GraftError, OperatorError, refuse_full
from ..core.files import write_atomically
from ..core.layout import Layout
from ..inputs.snapshot import Snapshot
from . import SOURCES_ARE_THERE


class Generator:
    """Runs torchgen on the merged YAML, in a process of its own. Compilation starts as soon as its sources exist,
    before it has written everything.

    As a context manager, it ends the process if the body is interrupted. If the body fails otherwise, the process
    may finish, so that the next build need not run it again.

    Args:
        layout: the folders of the build.
        snapshot: the inputs.
        base: the base, whose torchgen runs.
        cuda: what to generate for CUDA, a constant of this package.
    """

    def __init__(self, layout: Layout, snapshot: Snapshot, base: Base, cuda: str) -> None:
        self._layout = layout
        self._snapshot = snapshot
        self._base = base
        self._cuda = cuda
        self._process: subprocess.Popen[str] | None = None
        self._output: list[str] = []

    def start(self) -> bool:
        """Run torchgen, unless its output is up to date. Return whether it runs, once the sources exist.

        Raises:
            OperatorError: torchgen's message, with file and line in the native folder.
        """
        generated = self._layout.generated
        self._stamp = f"{self._snapshot.stamp_of_generated} {self._cuda}"
        self._done = generated / "complete"
        if self._done.is_file() and self._done.read_text(encoding="utf-8") == self._stamp:
            return False
        self._done.unlink(missing_ok=True)
        folders: list[str | Path] = ["--base", self._base.tree, "--native", *self._snapshot.natives, "--out", generated]
        command, env = torchgen_command(self._base.tree, "graft.codegen", *folders, "--cuda", self._cuda)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # it has a child process; `_stop` ends both
        )
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.strip() == SOURCES_ARE_THERE:
                return True
            self._output.append(text)
        self.finish()
        return True

    def finish(self) -> None:
        """Wait until it has finished.

        Raises:
            OperatorError: see ``start``.
            RefusedError: the disk is full.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        output, _ = process.communicate()
        message = "".join([*self._output, output or ""]).strip()
        if process.returncode != 0:
            refuse_full(message, self._layout.work)
            raise OperatorError(self._snapshot.translate(message))
        write_atomically(self._done, self._stamp)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, _: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, GraftError):
            with suppress(GraftError):
                self.finish()
        self._stop()
