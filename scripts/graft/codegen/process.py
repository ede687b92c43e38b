"""The process that runs torchgen."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ..base.base import Base, torchgen_command
from ..core.errors import OperatorError, refuse_full
from ..core.files import write_atomically
from ..core.layout import Layout
from ..core.process import follow
from ..inputs.snapshot import Snapshot
from . import SOURCES_ARE_THERE


class Generator:
    """Runs torchgen on the merged YAML, in a process of its own. Compilation starts as soon as its sources exist,
    before it has written everything.

    As a context manager, it waits for the process if the body fails, so that the next build need not run it again. An
    interrupt from the terminal ends the process, too.

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
        self._done = layout.generated / "complete"
        self._stamp = f"{snapshot.stamp_of_generated} {cuda}"
        self._pool = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None
        self._sources = threading.Event()

    def start(self) -> bool:
        """Run torchgen, unless its output is up to date. Return whether it runs, once the sources exist.

        Raises:
            OperatorError: torchgen's message, with file and line in the native folder.
        """
        if self._done.is_file() and self._done.read_text(encoding="utf-8") == self._stamp:
            return False
        self._done.unlink(missing_ok=True)
        self._running = self._pool.submit(self._run)
        self._running.add_done_callback(lambda _: self._sources.set())
        self._sources.wait()
        if self._running.done():
            self.finish()
        return True

    def _run(self) -> None:
        tree, natives = self._base.tree, self._snapshot.natives
        options: list[str | Path] = ["--native", *natives, "--out", self._layout.generated, "--cuda", self._cuda]
        command, env = torchgen_command(tree, "graft.codegen", "--base", tree, *options)
        output: list[str] = []

        def read(line: str) -> None:
            if line.strip() == SOURCES_ARE_THERE:
                self._sources.set()
            else:
                output.append(line)

        if follow(command, read, env=env) != 0:
            message = "".join(output).strip()
            refuse_full(message, self._layout.work)
            raise OperatorError(self._snapshot.translate(message))
        write_atomically(self._done, self._stamp)

    def finish(self) -> None:
        """Wait until it has finished.

        Raises:
            OperatorError: see ``start``.
            RefusedError: the disk is full.
        """
        if self._running:
            self._running.result()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
