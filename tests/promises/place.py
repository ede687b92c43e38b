"""A copy of the builder in a folder of its own, and what becomes of builds there."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers import interruptible, write

from scripts.common.layout import REPOSITORY

# How many steps a build counts.
STEPS = 7

# What a user's shell has no reason to set.
_LEFT_OUT = ("MAKE", "MFLAGS", "PYTEST", "PYTHON", "GRAFT_", "LC_", "LANG", "TZ")
# What the make that runs these tests was given is in the environment.
_OF_THE_MAKEFILE = set(re.findall(r"^(\w+) \?=", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M))


@dataclass(frozen=True)
class Outcome:
    """What came of a command: its exit code, and what it printed on both streams."""

    code: int
    said: str


class Place:
    """A repository with a home beside it, in which a user's commands run.

    Args:
        folder: where it is made.
        base: the base that is laid out.
        is_shared: whether it builds upon that one; if not, upon one that it has to fetch.
        umask: what its commands run with; -1 for that of the tests.
        variables: the same, of the environment.

    Attributes:
        natives: the folders of operators.
        out: where wheels go.
        prefix: what stands before each command.
    """

    def __init__(self, folder: Path, base: Path, *, is_shared: bool = True, umask: int = -1, **variables: str) -> None:
        self.umask, self.variables = umask, dict(variables)
        self.pin = base.parents[1].name
        self.repository, self.home = folder / "repository", folder / "home"
        for part in ("patches", "scripts"):
            shutil.copytree(REPOSITORY / part, self.repository / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copyfile(REPOSITORY / "Makefile", self.repository / "Makefile")
        (self.home / "bin").mkdir(parents=True)
        # Python as this one is called, whatever PATH has.
        for name in ("python3", f"python3.{sys.version_info.minor}"):
            write(self.home / "bin", {name: f'#!/bin/sh\nexec {sys.executable} "$@"\n'})
            (self.home / "bin" / name).chmod(0o755)
        if is_shared:
            made = self.repository / "build" / self.pin / base.parent.name
            made.mkdir(parents=True)
            (made / "base").symlink_to(base)
        self.natives, self.out = [self.home / "my_ops"], self.home / "my_wheel"
        self.prefix: list[str] = []

    @property
    def wheel(self) -> Path:
        """The only one that was built."""
        (wheel,) = self.out.iterdir()
        return wheel

    def start(self, command: list[str | Path], preexec_fn: Callable[[], None] = interruptible) -> subprocess.Popen[str]:
        """Start a command in the repository, with a process group of its own."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_LEFT_OUT) and name not in _OF_THE_MAKEFILE
        }
        path = f"{self.home / 'bin'}{os.pathsep}{kept['PATH']}"
        cache = kept.get("PIP_CACHE_DIR", str(Path.home() / ".cache/pip"))
        own = {"HOME": str(self.home), "PATH": path, "PIP_CACHE_DIR": cache}
        return subprocess.Popen(
            [*self.prefix, *command], cwd=self.repository, env={**kept, **own, **self.variables},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="backslashreplace", start_new_session=True, umask=self.umask,
            preexec_fn=preexec_fn,
        )  # fmt: skip

    def run(self, command: list[str | Path], preexec_fn: Callable[[], None] = interruptible) -> Outcome:
        """Run a command to its end."""
        with self.start(command, preexec_fn) as process:
            said, _ = process.communicate()
        return Outcome(process.returncode, said)

    def command(self, verb: str = "build", *more: str | Path) -> list[str | Path]:
        """What `make` runs for the folders of operators: its exit code is the builder's."""
        options = ["--pin", self.pin, "--native", shlex.join(map(str, self.natives)), "--out", self.out]
        return [sys.executable, "-m", "scripts", verb, *options, *more]

    def build(self, *more: str | Path) -> Outcome:
        """Build the wheel of the folders of operators."""
        return self.run(self.command("build", *more))

    def on_terminal(self, command: list[str | Path], see: Callable[[subprocess.Popen[str], bytes], None]) -> Outcome:
        """Run a command on a terminal; ``see`` gets the process and all that is shown, whenever more is."""
        ours, its = os.openpty()  # a log shows only the end of a step

        def connect() -> None:
            interruptible()
            os.dup2(its, 2)

        said = b""
        with os.fdopen(ours, "rb", buffering=0) as terminal, self.start(command, connect) as process:
            os.close(its)
            try:
                while True:
                    said += terminal.read(4096)
                    see(process, said)
            except OSError:  # it ended, and nobody holds the terminal's other end
                printed, _ = process.communicate()
        return Outcome(process.returncode, said.decode().replace("\r\n", "\n") + printed)

    def stop_at(self, shown: str, number: signal.Signals, command: list[str | Path]) -> Outcome:
        """Run a command on a terminal, and send its process group a signal as soon as the terminal shows a text."""
        stopped: list[int] = []

        def see(process: subprocess.Popen[str], said: bytes) -> None:
            if shown.encode() in said and not stopped:
                os.killpg(process.pid, number)
                stopped.append(number)

        outcome = self.on_terminal(command, see)
        assert stopped, f"the command ended before it showed {shown!r}:\n{outcome.said}"
        return outcome

    def state(self, folder: Path | None = None) -> dict[str, tuple[int, int, str]]:
        """Which files lie in a folder, by default that of wheels: when each was written, which it is, its bytes."""
        files = (path for path in (folder or self.out).rglob("*") if path.is_file())
        return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino, sha256(path)) for path in files}

    @contextmanager
    def edited(self, files: Mapping[str, str]) -> Iterator[None]:
        """Write files into the folder of operators; afterwards it has those that it had."""
        native, kept = self.home / "my_ops", Path(tempfile.mkdtemp(dir=self.home))
        shutil.copytree(native, kept, dirs_exist_ok=True)
        write(native, files)
        try:
            yield
        finally:
            shutil.rmtree(native)
            kept.rename(native)


def sha256(path: Path) -> str:
    """Of what a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
