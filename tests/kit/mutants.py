"""``make test-mutants``: insert one wrong line at a time, and check that a test fails."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import cache_from_source
from itertools import zip_longest
from pathlib import Path

from graft.core.console import say, table
from graft.core.errors import UsageError
from graft.core.layout import HOME, REPOSITORY
from graft.core.process import run
from graft.options import DEVELOP, Request

from .environments import copied_repository
from .kept import Kept
from .mutant_list import Mutant, change, choose, load_mutants, places
from .parts import TestsFailed
from .testing import STOCK, delivered, emulated_variables, one_at_a_time

# Results. The first four mean that the wrong line was found.
KILLED, CRASHED, HUNG, REFUSED = "killed", "crashed", "hung", "rejected by the build"
SURVIVED, BROKEN = "SURVIVED", "NO RESULT"

# pytest.ExitCode.TESTS_FAILED
_TESTS_FAILED = 1

# The exit codes of `timeout`: of a test that hangs, and more than this of one that was ended by a signal.
_TIMED_OUT, _SIGNALED = (124, 137), 128

# A mutant has few tests, but the machine may be busy.
_LIMIT = "900s"

_RED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.M)
# What `pytest -v` prints when a test begins; after a crash, the last one is the test that crashed.
_BEGUN = re.compile(r"^(\S+\.py::\S.*?) *(?:PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR|Fatal Python error|$)", re.M)
_COMPLAINT = re.compile(r"^.*\b(?:error|refused)\b.*$", re.M)


@dataclass(frozen=True)
class Fate:
    """What became of a mutant; ``by``: the test that failed, crashed or hung, or else a message."""

    outcome: str
    by: str


def test_mutants(request: Request, given: argparse.Namespace) -> None:
    """Try the chosen mutants in a copy of this repository, and print a table of the survivors; or list them."""
    chosen = choose(load_mutants(), given.chosen)
    lines = places(chosen)
    if given.list:
        for mutant, line in lines.items():
            print(f"{mutant.number:4} {mutant.file}:{line}: {change(mutant)}")
        return
    kept = Kept(HOME / "test-mutants.json")
    with one_at_a_time(request.layout, "mutants"):
        results = found_before(chosen, kept)
        if len(results) < len(chosen):
            with _copy(request, chosen) as copy:
                results = judge(chosen, lines, copy, kept)
        conclude(results, lines)


@dataclass
class Copy:
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

    def judge(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, Fate]]:
        """Apply all these mutants, build once if needed, and run the tests of each."""
        with self._mutated(mutants):
            code, text = self.build() if any(mutant.is_installed for mutant in mutants) else (0, "")
            if not code:
                yield from ((mutant, self._judge_built(mutant)) for mutant in mutants)
            elif len(mutants) == 1:
                yield mutants[0], Fate(REFUSED, _complaint(text))
        for mutant in mutants if code and len(mutants) > 1 else ():  # one of them broke the build
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

    def _judge_built(self, mutant: Mutant) -> Fate:
        code, text = self._test(["-x", "-v", *mutant.tests], self.variables(mutant))
        if code == 0:
            return Fate(SURVIVED, " ".join(mutant.tests))
        if code < 0 or code in _TIMED_OUT or code > _SIGNALED:
            return Fate(HUNG if code in _TIMED_OUT else CRASHED, (_BEGUN.findall(text) or [""])[-1])
        if code == _TESTS_FAILED and (red := _RED.search(text)):
            return Fate(KILLED, red[1])
        if mutant.is_emulated and "Error building extension" in text:
            return Fate(REFUSED, _complaint(text))
        return Fate(BROKEN, f"pytest exits with {code}: {_end(text)}")

    @contextmanager
    def _mutated(self, mutants: Sequence[Mutant]) -> Iterator[None]:
        right = {path: path.read_text(encoding="utf-8") for path in {self.folder / each.file for each in mutants}}
        wrong = dict(right)
        for mutant in mutants:
            path = self.folder / mutant.file
            if problem := mutant.problem(wrong[path]):  # another mutant with the same text would hide it
                raise UsageError(problem, todo="update the mutant in tests/mutants")
            wrong[path] = wrong[path].replace(mutant.right, mutant.wrong)
        try:
            _write(wrong)
            yield
        finally:
            _write(right)

    def _test(self, options: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        command: list[str | Path] = [self.python, "-m", "pytest", "--tb=line", "-p", "no:cacheprovider", *options]
        done = run(["timeout", "--kill-after=10", _LIMIT, *command], cwd=self.folder, env=variables, check=False)
        return done.returncode, done.stdout


def found_before(mutants: Sequence[Mutant], kept: Kept, *, is_certain: bool = True) -> dict[Mutant, Fate]:
    """Return the results of those that a run with the same sources found; ``is_certain``: and checked."""
    results = {mutant: kept.get(_name(mutant)) or {"outcome": ""} for mutant in mutants}
    return {
        mutant: Fate(each["outcome"], each["by"])
        for mutant, each in results.items()
        if each["outcome"] in (KILLED, CRASHED, HUNG, REFUSED) and (each["is_certain"] or not is_certain)
    }


def judge(chosen: Sequence[Mutant], lines: Mapping[Mutant, int], copy: Copy, kept: Kept) -> dict[Mutant, Fate]:
    """Return the result of each mutant. Results are kept as they come, and once more when they are certain."""
    results = found_before(chosen, kept, is_certain=False)
    left = [mutant for mutant in chosen if mutant not in results]
    # CUDA kernels and the builder come first: no operators are built for them, so those must be correct.
    for is_installed in (False, True):
        for mutants in rounds(mutant for mutant in left if mutant.is_installed == is_installed):
            start = time.monotonic()
            for mutant, result in copy.judge(mutants):
                results[mutant] = result
                kept.put(_name(mutant), {**asdict(result), "is_certain": False})
                done = f"({len(results)}/{len(chosen)}) {mutant.file}:{lines[mutant]} {time.monotonic() - start:.1f} s"
                say(f"{done} {result.outcome}: {result.by} [{mutant.number}]")
                start = time.monotonic()
    if any(mutant.is_installed for mutant in left):
        copy.build()
    certain = found_before(chosen, kept)
    checked = without_false_alarms({each: result for each, result in results.items() if each not in certain}, copy)
    for mutant, result in checked.items():
        kept.put(_name(mutant), {**asdict(result), "is_certain": True})
    return {**checked, **certain}


def _name(mutant: Mutant) -> str:
    return f"{mutant.file}: {mutant.right!r} -> {mutant.wrong!r}"


def rounds(mutants: Iterable[Mutant]) -> list[list[Mutant]]:
    """Group the mutants for common builds: one for each operator, and those that affect several operators alone."""
    of: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        of.setdefault(mutant.operator, []).append(mutant)
    alone = [[mutant] for mutant in of.pop("", [])]
    return alone + [[each for each in group if each] for group in zip_longest(*of.values())]


def without_false_alarms(results: Mapping[Mutant, Fate], copy: Copy) -> dict[Mutant, Fate]:
    """Correct the results by tests that also fail without a wrong line."""
    kinds: dict[tuple[tuple[str, str], ...], dict[str, None]] = {}
    for mutant, result in results.items():
        if result.outcome in (KILLED, CRASHED, HUNG) and result.by:
            kinds.setdefault(tuple(sorted(copy.variables(mutant).items())), {})[result.by] = None
    failing = {test for variables, tests in kinds.items() for test in copy.failing(list(tests), dict(variables))}
    return {
        mutant: Fate(BROKEN, f"fails without the mutant, too: {result.by}") if result.by in failing else result
        for mutant, result in results.items()
    }


def conclude(results: Mapping[Mutant, Fate], lines: Mapping[Mutant, int]) -> None:
    """Print the results of the mutants. Survivors are an error."""
    counts = Counter(sorted((result.outcome for result in results.values()), key=str.lower))
    print(f"\n{len(results)} mutants: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}")
    rows = [
        (str(mutant.number), f"{mutant.file}:{lines[mutant]}", result.outcome, change(mutant), result.by)
        for mutant, result in sorted(results.items(), key=lambda pair: pair[0].number)
        if result.outcome in (SURVIVED, BROKEN)
    ]
    if rows:
        print(table([("", "line", "", "", ""), *rows]))
        raise TestsFailed(
            f"{len(rows)} mutants survived",
            todo="write a test that fails with the wrong line, or choose another line if this one has no effect",
        )


def path_of(mutant: Mutant, folder: Path, base: Path) -> str:
    """Return where Python finds the builder of the copy in ``folder``, and, as for the tests of code generation, the
    base's torchgen.
    """
    torchgen = [base / "tree"] if any(word.startswith("tests/codegen") for word in mutant.tests) else []
    return os.pathsep.join(map(str, [folder / "scripts", *torchgen]))


@contextmanager
def _copy(request: Request, chosen: Sequence[Mutant]) -> Iterator[Copy]:
    """Hold a copy of the repository, and an environment with its operators, if a chosen mutant's tests need them."""
    folder = HOME / "mutants"
    there = replace(request, native=(folder / "native",), out=folder / "dist")
    needs_operators = not all(mutant.is_builder for mutant in chosen)
    with copied_repository(folder), delivered(there, DEVELOP if needs_operators else STOCK) as (python, variables):
        (folder / "build").symlink_to(HOME)  # builds of the tests take what others have compiled
        options = ["--native", str(folder / "native"), "--jobs", str(there.jobs), "--python", str(python)]

        def build() -> tuple[int, str]:
            done = run([sys.executable, "-m", "graft", "develop", *options], cwd=REPOSITORY, check=False)
            return done.returncode, done.stdout

        def variables_of(mutant: Mutant) -> Mapping[str, str]:
            if mutant.is_builder:
                return {**variables, "PYTHONPATH": path_of(mutant, folder, there.layout.base)}
            return {**variables, **(emulated_variables(there.layout) if mutant.is_emulated else {})}

        yield Copy(folder, python, variables_of, build)


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
        # Python takes it for that of the text, if both have the same size and are written in the same second.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _complaint(text: str) -> str:
    found = _COMPLAINT.search(text)
    return found[0].strip() if found else _end(text)


def _end(text: str) -> str:
    return (text.strip().splitlines() or ["it printed nothing"])[-1]
