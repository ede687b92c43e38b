"""The process that checks native folders and runs torchgen on them."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..base.base import Base, torchgen_command
from ..codegen import SOURCES_ARE_THERE
from ..core.bugs import BugError
from ..core.errors import BuildError, Finding
from ..core.files import write_atomically
from ..core.layout import Layout
from ..core.process import follow
from ..core.system_errors import refuse_full
from ..inputs.native import DOCS, INCLUDE, OVERLAY, PYTHON
from ..inputs.snapshot import Snapshot, hash_of_builder
from . import FOUND, Findings
from .folder import check_files, check_python

# The file in the work folder that says which inputs had no errors.
_CHECKED = "checked"
# The end of the note in ``complete``, if the headers that list operators have been generated.
_LISTS = " lists"


@dataclass
class Generator:
    """Checks the folders and runs torchgen on the merged YAML, in a process of its own. Skips work that is up to date.

    Compilation starts as soon as the sources exist, before the process has written everything.

    As a context manager, it waits for the process if the body fails, so that the next build need not run it again. An
    interrupt from the terminal ends the process, too.
    """

    layout: Layout
    snapshot: Snapshot
    base: Base
    cuda: str  # what to generate for CUDA, a constant of graft.codegen
    has_lists: bool = False  # whether the headers of ATen that list operators are generated, too
    findings: set[Finding] = field(default_factory=set)  # the warnings, once it has finished
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _sources: threading.Event = field(default_factory=threading.Event)
    _running: Future[None] | None = None

    def start(self) -> None:
        """Start the process. Return once the sources exist.

        If they exist already, return at once. ``is_refused`` says whether the check has found errors since then.
        """
        done, stamp = self.layout.generated / "complete", f"{self.snapshot.stamp_of_generated} {self.cuda}"
        found = done.read_text(encoding="utf-8") if done.is_file() else ""
        has_sources, wanted = found in (stamp, stamp + _LISTS), stamp + (_LISTS if self.has_lists else "")
        is_there = has_sources and found.startswith(wanted)
        if (checked := _checked(self.snapshot, self.layout.work)) is not None:
            texts = _check_texts(self.snapshot, self.base.tree)
            texts.settle()
            self.findings |= checked.found | texts.found
            if is_there:
                return
        if has_sources:
            self._sources.set()
        else:
            done.unlink(missing_ok=True)
        self._running = self._pool.submit(self._run, done, "" if is_there else wanted)
        self._running.add_done_callback(lambda _: self._sources.set())
        self._sources.wait()
        if self._running.done():
            self.finish()

    @property
    def is_refused(self) -> bool:
        """Whether the process has ended with an error."""
        return self._running is not None and self._running.done() and self._running.exception() is not None

    def _run(self, done: Path, stamp: str) -> None:
        """Run the process. It generates only if ``stamp`` is not empty, which is then noted in ``done``."""
        tree = self.base.tree
        options: list[str | Path] = ["--out", self.layout.generated, "--cuda", self.cuda] if stamp else []
        options += ["--lists"] if stamp and self.has_lists else []
        options += ["--unchecked"] if _checked(self.snapshot, self.layout.work) is not None else []
        command, env = torchgen_command(tree, "graft.check", tree, self.snapshot.note, "--json", *options)
        output: list[str] = []
        found: list[Findings] = []

        def read(line: str) -> None:
            if line.startswith(FOUND):
                found.append(Findings.from_json(line.removeprefix(FOUND)))
                if not found[0].errors:
                    found[0].settle()
                    self.findings |= found[0].found
                    others = found[0].found - _check_texts(self.snapshot, tree).found if found[0].found else set()
                    _note_checked(self.snapshot, self.layout.work, Findings(others))
            elif line.strip() == SOURCES_ARE_THERE:
                self._sources.set()
            else:
                output.append(line)

        code = follow(command, read, cwd=tree, env=env)
        if found and found[0].errors:
            found[0].settle()
        if code:
            message = "".join(output).strip()
            refuse_full(message, self.layout.work)
            kind = BugError if code == BugError.exit_code else BuildError
            raise kind(message)
        if stamp:
            write_atomically(done, stamp)

    def finish(self) -> None:
        """Wait for the process. Raise its error: the findings of the check, or torchgen's message with its place."""
        if self._running:
            self._running.result()

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def _checked(snapshot: Snapshot, work: Path) -> Findings | None:
    """Return the warnings about these inputs if an earlier build found no errors in them; else None. Docstrings and
    Python files do not count.
    """
    note = work / _CHECKED
    stamp, _, warnings = note.read_text(encoding="utf-8").partition("\n") if note.is_file() else ("", "", "")
    return Findings.from_json(warnings) if stamp == _stamp(snapshot) else None


def _note_checked(snapshot: Snapshot, work: Path, warnings: Findings) -> None:
    """Record that these inputs have no errors, and the warnings about them."""
    write_atomically(work / _CHECKED, f"{_stamp(snapshot)}\n{warnings.as_json()}")


def _check_texts(snapshot: Snapshot, base_tree: Path) -> Findings:
    """Check the docstrings and Python files of the native folders."""
    findings = Findings()
    check_files(snapshot.natives, findings)
    check_python(snapshot.natives, base_tree, findings)
    return findings


def _stamp(snapshot: Snapshot) -> str:
    """Return a hash of the inputs that are checked; for docstrings and Python files, of their names only."""
    digest = hashlib.sha256(hash_of_builder().encode())
    unread = {f"{folder.path}/{name}": b"" for folder in snapshot.read.folders for name in folder.unread}
    for name, content in sorted({**snapshot.files, **unread}.items()):
        is_laid_over = name.startswith(f"{OVERLAY}/") and not name.split("/", 2)[2].startswith(INCLUDE)
        is_text = is_laid_over or name.split("/")[2:3] in ([DOCS.name], [PYTHON.name])
        digest.update(f"{name}\0{'' if is_text else len(content)}\0".encode())
        digest.update(b"" if is_text else content)
    digest.update(repr([folder.settings.kept for folder in snapshot.read.folders]).encode())
    return digest.hexdigest()
