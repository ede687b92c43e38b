"""A copy of the builder in its own folder, and the results of builds there."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from graft.core.environments import ENVIRONMENTS
from graft.core.layout import REPOSITORY
from graft.given import OF_MAKE
from graft.options import NAMES, SHARED
from helpers import DERIVED, OBJECTS, interruptible, of_the_base_wheel, program, share_builds, write

# The steps of a build.
STEPS = ("base wheel", "unpack it", "generate", "compile and link", "compose", "pack")

# Variables that a user's shell does not set.
_LEFT_OUT = ("MAKE", "MFLAGS", "PYTEST", "PYTHON", "GRAFT_", "LC_", "LANG", "TZ")
# The variables passed to the make that runs these tests may be in the environment.
_OF_THE_MAKEFILE = {*OF_MAKE, *(name.word for name in NAMES)} - set(SHARED)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command: its exit code, and its output on both streams."""

    code: int
    said: str


class Place:
    """A repository next to a home folder, in which a user's commands run.

    Args:
        folder: the folder that contains both.
        base: the unpacked base.
        shares: what it takes from this repository's builds: ``base``, or it downloads one; ``DERIVED``; ``OBJECTS``;
            the environments of the builder.
        umask: the umask of its commands; -1 for that of the tests.
        variables: environment variables of its commands.

    Attributes:
        natives: the native folders.
        out: the output folder.
        prefix: a prefix of each command.
    """

    def __init__(
        self,
        folder: Path,
        base: Path,
        *,
        shares: Collection[str] = ("base", *DERIVED, OBJECTS, ENVIRONMENTS),
        umask: int = -1,
        **variables: str,
    ) -> None:
        self.base, self.umask, self.variables = base, umask, dict(variables)
        self.pin = base.parents[1].name
        self.repository, self.home = folder / "repository", folder / "home"
        for part in ("patches", "scripts", "tests/kit"):
            shutil.copytree(REPOSITORY / part, self.repository / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Makefile", "noxfile.py"):
            shutil.copyfile(REPOSITORY / name, self.repository / name)
        # The names of Python, whatever PATH has.
        for name in ("python3", f"python3.{sys.version_info.minor}"):
            program(self.home / "bin" / name, f'exec {sys.executable} "$@"')
        share_builds(self.repository / "build", self.home / ".cache/graft", base, shares)
        self.natives, self.out = [self.home / "my_ops"], self.home / "my_wheel"
        self.prefix: list[str] = []

    @property
    def wheel(self) -> Path:
        """The only wheel that was built."""
        (wheel,) = self.out.iterdir()
        return wheel

    def members(self) -> dict[str, bytes]:
        """Return the members of the wheel that the base lacks, or that differ."""
        (base_wheel,) = self.base.glob("*.whl")
        with ZipFile(base_wheel) as base, ZipFile(self.wheel) as ours:
            theirs = {info.filename: info.CRC for info in base.infolist()}
            changed = (info for info in ours.infolist() if theirs.get(info.filename) != info.CRC)
            # Official wheels for CUDA have entries for folders, too.
            return {info.filename: ours.read(info) for info in changed if not info.is_dir()}

    def install(self, folder: Path) -> Path:
        """Make ``folder`` what pip installs from the wheel, with links to the official torch where nothing differs."""
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["cp", "-rs", of_the_base_wheel("GRAFT_STOCK"), folder], check=True)
        for name, content in self.members().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_bytes(content)
        return folder

    def start(self, command: list[str | Path], preexec_fn: Callable[[], None] = interruptible) -> subprocess.Popen[str]:
        """Start a command in the repository, in a process group of its own."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_LEFT_OUT) and name not in _OF_THE_MAKEFILE
        }
        path = f"{self.home / 'bin'}{os.pathsep}{kept['PATH']}"
        cache = kept.get("PIP_CACHE_DIR", str(Path.home() / ".cache/pip"))
        own = {
            "PYTHONPATH": str(self.repository / "scripts"),
            "HOME": str(self.home),
            "PATH": path,
            "PIP_CACHE_DIR": cache,
            "PIP_NO_COMPILE": "0",  # means --no-compile: nothing reads the bytecode of all of torch
            "XDG_CACHE_HOME": str(self.home / ".cache"),
        }
        return subprocess.Popen(
            [*self.prefix, *command], cwd=self.repository, env={**kept, **own, **self.variables},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="backslashreplace", start_new_session=True, umask=self.umask,
            preexec_fn=preexec_fn,
        )  # fmt: skip

    def run(self, command: list[str | Path], preexec_fn: Callable[[], None] = interruptible) -> Outcome:
        """Run a command until it ends."""
        with self.start(command, preexec_fn) as process:
            said, _ = process.communicate()
        return Outcome(process.returncode, said)

    def command(self, verb: str = "build", *more: str | Path) -> list[str | Path]:
        """Return the command that `make` runs for the native folders; its exit code is the builder's."""
        options: list[str | Path] = ["--pin", self.pin, "--native", shlex.join(map(str, self.natives))]
        options += ["--out", self.out] if verb != "check" else []
        return [sys.executable, "-m", "graft", verb, *options, *more]

    def build(self, *more: str | Path) -> Outcome:
        """Build the wheel of the native folders."""
        return self.run(self.command("build", *more))

    def on_terminal(self, command: list[str | Path], see: Callable[[subprocess.Popen[str], bytes], None]) -> Outcome:
        """Run a command on a terminal. ``see`` is called with the process and its output so far, whenever there is
        more.
        """
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
            except OSError:  # the process ended and closed the terminal
                printed, _ = process.communicate()
        return Outcome(process.returncode, said.decode().replace("\r\n", "\n") + printed)

    def stop_at(self, shown: str, number: signal.Signals, command: list[str | Path]) -> Outcome:
        """Run a command on a terminal, and send a signal to its process group when the terminal shows a text."""
        stopped: list[int] = []

        def see(process: subprocess.Popen[str], said: bytes) -> None:
            if shown.encode() in said and not stopped:
                os.killpg(process.pid, number)
                stopped.append(number)

        outcome = self.on_terminal(command, see)
        assert stopped, f"the command ended before it showed {shown!r}:\n{outcome.said}"
        return outcome

    def state(self, folder: Path | None = None) -> dict[str, tuple[int, int, str]]:
        """Return the time, the inode and the hash of each file in a folder, by default the output folder."""
        files = (path for path in (folder or self.out).rglob("*") if path.is_file())
        return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino, sha256(path)) for path in files}

    @contextmanager
    def edited(self, files: Mapping[str, str]) -> Iterator[None]:
        """Write files into the native folder; restore it afterwards."""
        native, kept = self.home / "my_ops", Path(tempfile.mkdtemp(dir=self.home))
        shutil.copytree(native, kept, dirs_exist_ok=True)
        write(native, files)
        try:
            yield
        finally:
            shutil.rmtree(native)
            kept.rename(native)


@dataclass(frozen=True)
class Disturbed:
    """A build of the README's folder that was stopped several times.

    Args:
        place: its place.
        stopped: the outcome of each attempt; the last one succeeded.
        left: the files in the output folder after each.
    """

    place: Place
    stopped: dict[str, Outcome]
    left: dict[str, list[str]]


def sha256(path: Path) -> str:
    """Return the hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
