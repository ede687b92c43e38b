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
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..common.layout import REPOSITORY
from ..common.process import run
from .mutant_list import Mutant

# pytest.ExitCode.TESTS_FAILED
_TESTS_FAILED = 1

# Seconds. The tests of a mutant are few, but others may use the machine, too.
_LIMIT = 900

_RED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.M)
# What `pytest -v` prints when a test begins; behind a crash, of the test that crashed.
_BEGUN = re.compile(r"^(\S+\.py::\S.*?) *(?:PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR|$)", re.M)
_COMPLAINT = re.compile(r"^.*\b(?:error|refused)\b.*$", re.M)


class Outcome(Enum):
    """What came of a mutant."""

    KILLED = "killed"
    CRASHED = "crashed"
    HUNG = "hung"
    REFUSED = "refused by the build"
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
        by: the test that failed, crashed or hung, or else what was said.
        seconds: with its build.
    """

    outcome: Outcome
    by: str
    seconds: float = 0


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

    def failing(self, tests: Sequence[str], variables: Mapping[str, str]) -> set[str]:
        """Those of the tests that fail on the copy as it is; all of them where pytest cannot say."""
        code, text = self._test(["-q", *tests], variables)
        return set(_RED.findall(text)) if code == _TESTS_FAILED else set(tests) if code else set()

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
            mutant.require_once(wrong[path])  # another one of the same text would hide it
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
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                error.output = process.communicate()[0]
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


def _last_begun(text: str) -> str:
    """The test that was running when pytest ended; empty if that cannot be told."""
    begun = _BEGUN.findall(text)
    return str(begun[-1]) if begun else ""


def _complaint(text: str) -> str:
    found = _COMPLAINT.search(text)
    return found[0].strip() if found else _end(text)


def _end(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1]
