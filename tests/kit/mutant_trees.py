"""Copies of the repository with wrong lines, and the results of their tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from graft.core.layout import REPOSITORY
from graft.core.process import run

from .mutant_list import Mutant

# pytest.ExitCode.TESTS_FAILED
_TESTS_FAILED = 1

# Seconds. A mutant has few tests, but the machine may be busy.
_LIMIT = 900

_RED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.M)
# What `pytest -v` prints when a test begins; after a crash, the last one is the test that crashed.
_BEGUN = re.compile(r"^(\S+\.py::\S.*?) *(?:PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR|Fatal Python error|$)", re.M)
_COMPLAINT = re.compile(r"^.*\b(?:error|refused)\b.*$", re.M)


class Outcome(Enum):
    """The result of a mutant."""

    KILLED = "killed"
    CRASHED = "crashed"
    HUNG = "hung"
    REFUSED = "rejected by the build"
    SURVIVED = "SURVIVED"
    BROKEN = "NO RESULT"

    @property
    def is_found(self) -> bool:
        """Whether a test or the build detected the wrong line."""
        return self not in (Outcome.SURVIVED, Outcome.BROKEN)


@dataclass(frozen=True)
class Result:
    """The result of a mutant, and how long it took.

    Args:
        outcome: the kind of result.
        by: the test that failed, crashed or hung, or else a message.
        seconds: including its build.
    """

    outcome: Outcome
    by: str
    seconds: float = 0


@dataclass
class Tree:
    """A copy of the repository.

    Args:
        folder: its path.
        python: the Python that runs the tests.
        variables: returns the environment variables for the tests of a mutant.
        build: builds and installs the copy's operators; returns an exit code and the output.
    """

    folder: Path
    python: Path
    variables: Callable[[Mutant], Mapping[str, str]]
    build: Callable[[], tuple[int, str]]

    def judge(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, Result]]:
        """Apply all these mutants, build once if needed, and run the tests of each."""
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
        for mutant in mutants if code else ():  # one of them broke the build
            yield from self.judge([mutant])

    def failing(self, tests: Sequence[str], variables: Mapping[str, str]) -> set[str]:
        """Return those of the tests that fail without a mutant, or that pytest cannot run."""
        code, text = self._test(["-q", *tests], variables)
        if code in (0, _TESTS_FAILED):
            return set(_RED.findall(text)) if code else set()
        if len(tests) == 1:
            return set(tests)
        half = len(tests) // 2
        return self.failing(tests[:half], variables) | self.failing(tests[half:], variables)

    def _judge_wrong(self, mutant: Mutant) -> tuple[Outcome, str]:
        try:
            code, text = self._test(["-x", "-v", *mutant.tests], self.variables(mutant))
        except subprocess.TimeoutExpired as error:
            return Outcome.HUNG, _last_begun(error.output or "")
        if code == 0:
            return Outcome.SURVIVED, " ".join(mutant.tests)
        if code < 0:
            return Outcome.CRASHED, _last_begun(text)
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
            mutant.require_once(wrong[path])  # it would be hidden by another mutant with the same text
            wrong[path] = wrong[path].replace(mutant.right, mutant.wrong)
        try:
            _write(wrong)
            yield
        finally:
            _write(right)

    def _test(self, options: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        command: list[str | Path] = [self.python, "-m", "pytest", "--tb=line", "-p", "no:cacheprovider", *options]
        return run_limited(command, self.folder, variables, _LIMIT)


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def run_limited(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str], limit: float
) -> tuple[int, str]:
    """Run a program. Return its exit code and output.

    Raises:
        subprocess.TimeoutExpired: after ``limit`` seconds; it and its children are killed.
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
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                error.output = process.communicate()[0]
            raise
    return process.returncode, text


@contextmanager
def copied(folder: Path, repository: Path = REPOSITORY) -> Iterator[Path]:
    """Copy the repository's files, without ignored ones, to ``folder``, and delete it at the end."""
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


def _last_begun(text: str) -> str:
    """Return the test that was running when pytest ended; empty if unknown."""
    begun = _BEGUN.findall(text)
    return str(begun[-1]) if begun else ""


def _complaint(text: str) -> str:
    found = _COMPLAINT.search(text)
    return found[0].strip() if found else _end(text)


def _end(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1]
