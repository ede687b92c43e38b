"""Copies of the repository in which one line is wrong, and what tests say of them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ..common.layout import REPOSITORY
from ..common.process import run
from .mutant_list import Mutant

# pytest.ExitCode.TESTS_FAILED
_TESTS_FAILED = 1

_RED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)
_COMPLAINT = re.compile(r"^.*\b(?:error|refused)\b.*$", re.M)


class Outcome(Enum):
    """What came of a mutant."""

    KILLED = "killed"
    REFUSED = "refused by the build"
    CRASHED = "crashed"
    HUNG = "hung"
    SURVIVED = "SURVIVED"
    BROKEN = "NO RESULT"

    @property
    def is_found(self) -> bool:
        """Whether somebody would notice the wrong line."""
        return self not in (Outcome.SURVIVED, Outcome.BROKEN)


@dataclass(frozen=True)
class Result:
    """What came of a mutant, and how long it took.

    Args:
        outcome: in a word.
        by: the test that failed, or else what was said.
        seconds: with its build.
    """

    outcome: Outcome
    by: str
    seconds: float = 0


@dataclass(frozen=True)
class Right:
    """How long tests take without a wrong line, and why they fail there, too, if they do."""

    seconds: float
    complaint: str


@dataclass
class Tree:
    """A copy of the repository.

    Args:
        folder: where it is.
        python: of the environment that tests run in.
        variables: what the tests of a mutant run with.
        build: adds the copy's operators to the environment, and returns an exit code and what was printed.
    """

    folder: Path
    python: Path
    variables: Callable[[Mutant], Mapping[str, str]]
    build: Callable[[], tuple[int, str]]
    _right: dict[tuple[str, ...], Right] = field(default_factory=dict)

    def judge_right(self, mutant: Mutant) -> None:
        """Run the mutant's tests on the copy as it is, unless that was done."""
        if mutant.tests not in self._right:
            start = time.monotonic()
            code, text = self._test(mutant, None)
            complaint = f"the tests fail without it, too: {_end(text)}" if code else ""
            self._right[mutant.tests] = Right(time.monotonic() - start, complaint)

    def judge(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, Result]]:
        """Run the tests of each mutant with all the wrong lines, which one build takes if there is any to build."""
        start = time.monotonic()
        with self._mutated(mutants):
            is_built = any(not mutant.is_builder and not mutant.is_emulated for mutant in mutants)
            code, text = self.build() if is_built else (0, "")
            if code and len(mutants) == 1:
                yield mutants[0], Result(Outcome.REFUSED, _complaint(text), time.monotonic() - start)
                return
            for mutant in mutants if not code else ():
                outcome, by = self._judge_wrong(mutant)
                yield mutant, Result(outcome, by, time.monotonic() - start)
                start = time.monotonic()
        for mutant in mutants if code else ():  # one of them is to blame
            yield from self.judge([mutant])

    def _judge_wrong(self, mutant: Mutant) -> tuple[Outcome, str]:
        right = self._right[mutant.tests]
        if right.complaint:
            return Outcome.BROKEN, right.complaint
        limit = 60 + 10 * right.seconds  # others use the machine, too
        try:
            code, text = self._test(mutant, limit)
        except subprocess.TimeoutExpired:
            return Outcome.HUNG, f"no end after {limit:.0f} s"
        if code == 0:
            return Outcome.SURVIVED, " ".join(mutant.tests)
        if code < 0:
            return Outcome.CRASHED, signal.Signals(-code).name
        if code == _TESTS_FAILED and (red := _RED.search(text)):
            return Outcome.KILLED, red[1]
        if mutant.is_emulated and "Error building extension" in text:
            return Outcome.REFUSED, _complaint(text)
        return Outcome.BROKEN, f"pytest exits with {code}: {_end(text)}"

    @contextmanager
    def _mutated(self, mutants: Sequence[Mutant]) -> Iterator[None]:
        right = {path: path.read_text(encoding="utf-8") for path in {self.folder / each.file for each in mutants}}
        wrong = dict(right)
        for mutant in mutants:
            path = self.folder / mutant.file
            wrong[path] = wrong[path].replace(mutant.right, mutant.wrong)
        try:
            _write(wrong)
            yield
        finally:
            _write(right)

    def _test(self, mutant: Mutant, limit: float | None) -> tuple[int, str]:
        options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", *mutant.tests]
        return run_limited([self.python, "-m", "pytest", *options], self.folder, self.variables(mutant), limit)


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def run_limited(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], limit: float | None
) -> tuple[int, str]:
    """Run a program; return its exit code and what it printed.

    Raises:
        subprocess.TimeoutExpired: after ``limit`` seconds, when it and what it started are killed.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=limit)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, text


@contextmanager
def copied(folder: Path, repository: Path = REPOSITORY) -> Iterator[Path]:
    """Make ``folder`` a copy of the repository's files, without what is ignored; gone in the end."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=repository).stdout
    for name in filter(None, listed.split("\0")):
        if (repository / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, folder / name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _complaint(text: str) -> str:
    found = _COMPLAINT.search(text)
    return found[0].strip() if found else _end(text)


def _end(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1]
