"""The process that runs torchgen."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..base.base import Base, torchgen_command
from ..core.bugs import BugError
from ..core.errors import OperatorError, refuse_full
from ..core.files import write_atomically
from ..core.layout import Layout
from ..core.process import follow
from ..inputs.snapshot import Snapshot
from . import SOURCES_ARE_THERE


@dataclass
class Generator:
    """Runs torchgen on the merged YAML, in a process of its own. Compilation starts as soon as its sources exist,
    before it has written everything.

    As a context manager, it waits for the process if the body fails, so that the next build need not run it again. An
    interrupt from the terminal ends the process, too.
    """

    layout: Layout
    snapshot: Snapshot
    base: Base
    cuda: str  # what to generate for CUDA, a constant of this package
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _sources: threading.Event = field(default_factory=threading.Event)
    _running: Future[None] | None = None

    def start(self) -> bool:
        """Run torchgen, unless its output is up to date. Return whether it runs, once the sources exist.

        Raises:
            OperatorError: torchgen's message, with file and line in the native folder.
        """
        done, stamp = self.layout.generated / "complete", f"{self.snapshot.stamp_of_generated} {self.cuda}"
        if done.is_file() and done.read_text(encoding="utf-8") == stamp:
            return False
        done.unlink(missing_ok=True)
        self._running = self._pool.submit(self._run, done, stamp)
        self._running.add_done_callback(lambda _: self._sources.set())
        self._sources.wait()
        if self._running.done():
            self.finish()
        return True

    def _run(self, done: Path, stamp: str) -> None:
        tree, natives = self.base.tree, self.snapshot.natives
        options: list[str | Path] = ["--native", *natives, "--out", self.layout.generated, "--cuda", self.cuda]
        command, env = torchgen_command(tree, "graft.codegen", "--base", tree, *options)
        output: list[str] = []

        def read(line: str) -> None:
            if line.strip() == SOURCES_ARE_THERE:
                self._sources.set()
            else:
                output.append(line)

        if code := follow(command, read, env=env):
            message = "".join(output).strip()
            refuse_full(message, self.layout.work)
            kind = BugError if code == BugError.exit_code else OperatorError
            raise kind(self.snapshot.translate(message))
        write_atomically(done, stamp)

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
