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
    _seconds: dict[tuple[str, ...], float] = field(default_factory=dict)
    _is_wrong_built: bool = False

    def judge(self, mutant: Mutant) -> Result:
        """Run the mutant's tests on the copy as it is, unless that was done, and then with the wrong line."""
        start = time.monotonic()
        outcome, by = self._judge_right(mutant)
        if outcome is Outcome.SURVIVED:
            path = self.folder / mutant.file
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
            try:
                outcome, by = self._judge_wrong(mutant)
            finally:
                path.write_text(text, encoding="utf-8")
        return Result(outcome, by, time.monotonic() - start)

    def _judge_right(self, mutant: Mutant) -> tuple[Outcome, str]:
        is_known = mutant.tests in self._seconds
        if self._is_wrong_built and (mutant.is_emulated or not is_known):
            self._is_wrong_built = False
            self.build()
        if not is_known:
            start = time.monotonic()
            code, text = self._test(mutant, None)
            if code:
                return Outcome.BROKEN, f"the tests fail without it, too: {_end(text)}"
            self._seconds[mutant.tests] = time.monotonic() - start
        return Outcome.SURVIVED, ""

    def _judge_wrong(self, mutant: Mutant) -> tuple[Outcome, str]:
        if not mutant.is_builder and not mutant.is_emulated:
            self._is_wrong_built = True
            code, text = self.build()
            if code:
                return Outcome.REFUSED, _complaint(text)
        # Of a machine that others use, too.
        limit = 60 + 10 * self._seconds[mutant.tests]
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

    def _test(self, mutant: Mutant, limit: float | None) -> tuple[int, str]:
        options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", *mutant.tests]
        return run_limited([self.python, "-m", "pytest", *options], self.folder, self.variables(mutant), limit)


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
