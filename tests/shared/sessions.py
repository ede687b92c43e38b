"""Processes with the official torch that load operators and are sent pieces of code."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from graft.core.layout import PACKAGES
from helpers import OBJECTS, share_store, write

_SERVED = Path(__file__).with_name("served.py")
# What pip installs beside Graft. Processes that a process starts find its operators by it.
_ENTRY_POINTS = "[torch.backends]\ngraft = graft.children:autoload\n"
# What a session says of operators that it had.
_WHY = re.compile(r": the load \w+ of graft\.load had it, and was \w+ since")
_LONG_BUILD = re.compile(r"^graft: [\w.-]+: .*\n", re.M)


def without_progress(text: str) -> str:
    """Return what a process wrote to its standard error without the lines about builds."""
    return _LONG_BUILD.sub("", text)


class Raised(Exception):
    """A piece of code raised an exception; the text is its type and message."""


def stock_variables(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process with the official torch and Graft. What compilers keep is in ``folder``."""
    installed = write(folder / "installed", {"torch_graft-0.dist-info/entry_points.txt": _ENTRY_POINTS})
    write(installed, {"torch_graft-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch-graft\nVersion: 0\n"})
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "PYTEST"))}
    env["PYTHONPATH"] = os.pathsep.join([os.environ["GRAFT_STOCK"], str(PACKAGES), str(installed)])
    return {**env, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), **variables}


def home_with_objects(folder: Path) -> str:
    """Return a folder for GRAFT_HOME: nothing is built there, but builds find the objects of all others."""
    share_store(folder, [OBJECTS])
    return str(folder)


class Session:
    """A process that runs pieces of code in one namespace, as a notebook does.

    Args:
        folder: where it writes, shared with other sessions of a test.
        modules: what it imports first.
        variables: environment variables; those with an empty value are removed.
    """

    def __init__(self, folder: Path, modules: str = "torch, graft", **variables: str) -> None:
        self._errors = Path(tempfile.mkdtemp(prefix="session-", dir=folder)) / "errors"
        self._read = 0
        env = {name: value for name, value in stock_variables(folder, **variables).items() if value}
        command, pipe = [sys.executable, str(_SERVED)], subprocess.PIPE
        with self._errors.open("a") as errors:
            self.process = subprocess.Popen(
                command, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=errors, text=True, start_new_session=True
            )
        self.run(f"import {modules}\ntorch.set_num_threads(1)")
        self.said()

    def send(self, code: str) -> None:
        """Start a piece of code; ``answer`` waits for its end."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Return what the piece that was sent printed."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}:\n{self.said()[-3000:]}"
        printed, error = json.loads(line)
        if error is not None:
            raise Raised(error)
        return cast(str, printed).removesuffix("\n")

    def run(self, code: str) -> str:
        """Run a piece of code. Return what it prints; the value of a last line that is an expression is printed.

        Raises:
            Raised: the code raised an exception.
        """
        self.send(code)
        return self.answer()

    def value(self, expression: str) -> Any:
        """Return the value of an expression: numbers, texts, and lists of them."""
        return ast.literal_eval(self.run(expression))

    def error(self, code: str) -> str:
        """Return the type and the message of the exception that a piece of code raises."""
        try:
            printed = self.run(code)
        except Raised as error:
            return str(error)
        raise AssertionError(f"no exception: {code}\nprinted: {printed}")

    def attempt(self, code: str) -> str:
        """Return what a piece of code prints, or the first line of its exception."""
        try:
            return self.run(code)
        except Raised as error:
            return _first_line(str(error))

    def said(self, *, keep: bool = False) -> str:
        """Return what the process has written to its standard error since the last call that did not ``keep`` it, but
        for the lines about builds.
        """
        text = self._errors.read_text(errors="replace")[self._read :]
        self._read += 0 if keep else len(text)
        return without_progress(text)

    def progress(self) -> list[str]:
        """Return the lines about builds that the process has written so far."""
        return _LONG_BUILD.findall(self._errors.read_text(errors="replace"))

    def load(self, folder: Path, **options: str) -> None:
        """Load a folder."""
        self.run(f"graft.load({str(folder)!r}, **{options!r})")

    def ended(self) -> int:
        """End the process as a script ends. Return its exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()


def agrees(session: Session, where: Path, folder: Path, setup: str, programs: Mapping[str, str]) -> dict[str, str]:
    """Check that a session prints for each program what a fresh process prints that has loaded the folder once. Return
    what it prints.

    Args:
        session: the edited session, which has run ``setup`` after its first load.
        where: the folder of both.
        folder: the native folder, which no test edits.
        setup: code that the programs need.
        programs: pieces of code, by name.
    """
    there = {name: _WHY.sub("", session.attempt(code)) for name, code in programs.items()}
    assert there == printed_at_first(where, folder, setup, tuple(programs.items()))
    return there


@functools.cache
def printed_at_first(where: Path, folder: Path, setup: str, programs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return what a fresh process prints for each program that has loaded a folder which no test edits."""
    pieces = [f"import graft\ngraft.load({str(folder)!r})", setup, *(code for _, code in programs)]
    answers = _imported(where).value(f"forked({pieces!r})")
    assert answers[0][1] is None, answers[0]
    printed = [_first_line(error) if error else text.removesuffix("\n") for text, error in answers[2:]]
    return dict(zip(dict(programs), printed, strict=True))


@functools.cache
def _imported(where: Path) -> Session:
    """Return a process whose forks are fresh: it has imported PyTorch and its compilers, which takes ten seconds, and
    not Graft. It ends with this process.
    """
    return Session(
        where, "torch, torch._dynamo, torch._functorch.aot_autograd, torch._inductor.compile_fx, torch.export"
    )


def _first_line(text: str) -> str:
    return text.splitlines()[0]


class Folder:
    """A native folder that is edited.

    Args:
        path: its path.
        texts: its files.
    """

    def __init__(self, path: Path, texts: Mapping[str, str]) -> None:
        self.path = path
        self.become(texts)

    def become(self, texts: Mapping[str, str]) -> None:
        """Make it another version."""
        for path in [path for path in self.path.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.path)) not in texts:
                path.unlink()
        write(self.path, texts)

    def edit(self, name: str, before: str, after: str) -> None:
        """Replace text in a file, everywhere; it must be there."""
        text = (self.path / name).read_text()
        assert before in text, (name, before)
        self.add(name, text.replace(before, after))

    def add(self, name: str, text: str) -> None:
        """Write a file."""
        write(self.path, {name: text})

    def remove(self, name: str) -> None:
        """Delete a file."""
        (self.path / name).unlink()

    def make_new(self, *names: str) -> None:
        """Edit sources so that compilers run, with the same results."""
        for name in names:
            self.add(name, f"{(self.path / name).read_text()}// {uuid.uuid4()}\n")


def compilers(process: int, source: str = "") -> set[int]:
    """Return the compilers that run for a process: of C++, and of a source."""
    parents, commands = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            commands[int(path.name)] = (path / "cmdline").read_bytes()
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {each for each in found if b"cc1plus" in commands[each] and source.encode() in commands[each]}
