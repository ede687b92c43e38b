"""``make test-mutants``: insert one wrong line at a time, and check that a test fails."""

from __future__ import annotations

import queue
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from graft.core.console import say, table
from graft.core.layout import REPOSITORY, Layout
from graft.core.process import run

from .delivered import DEVELOP, delivered
from .mutant_list import Mutant, choose, load_mutants, places
from .mutant_trees import Outcome, Result, Tree, copied
from .parts import TestsFailed
from .run import TESTS, emulated_variables, one_at_a_time

LIST = TESTS / "mutants"

_COPIES = REPOSITORY / "build/mutants"


def list_mutants(words: Sequence[str], folder: Path = LIST, repository: Path = REPOSITORY) -> None:
    """Print the chosen mutants."""
    chosen = choose(load_mutants(folder), words)
    for mutant, line in places(chosen, repository).items():
        print(f"{mutant.number:4} {mutant.file}:{line}: {_short(mutant.right)} -> {_short(mutant.wrong)}")


def test_mutants(layout: Layout, words: Sequence[str], *, base_wheel: Path | None, jobs: int) -> None:
    """Try the chosen mutants, each in a copy of this repository. Print a table of the survivors.

    Args:
        layout: the layout with the repository's native folder.
        words: numbers and parts of file names; empty for all.
        base_wheel: path of the base wheel; None to download it with pip.
        jobs: the maximum number of compilers, or of copies that build no operators, to run at once.

    Raises:
        TestsFailed: some mutants survived.
        UsageError: the list does not match the sources, or a word matches nothing.
    """
    chosen = choose(load_mutants(LIST), words)
    lines = places(chosen, REPOSITORY)
    with one_at_a_time(layout, "mutants"), _trees(layout, base_wheel, jobs) as (operators, others):
        conclude(judge(chosen, lines, operators, others), lines)


def judge(
    chosen: Sequence[Mutant], lines: Mapping[Mutant, int], operators: Tree, others: Sequence[Tree]
) -> dict[Mutant, Result]:
    """Return the result of each mutant. Those of operators run in rounds, those of the builder at the same time."""
    results: dict[Mutant, Result] = {}
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in (mutant for mutant in chosen if mutant.is_builder):
        waiting.put(mutant)

    def judge_all(tree: Tree, mutants: Sequence[Mutant]) -> None:
        for mutant, result in tree.judge(mutants):
            results[mutant] = result
            place = f"{mutant.file}:{lines[mutant]}"
            done = f"({len(results)}/{len(chosen)}) {place} {result.seconds:.1f} s"
            say(f"{done} {result.outcome.value}: {result.by} [{mutant.number}]")

    def judge_operators() -> None:
        native = [mutant for mutant in chosen if not mutant.is_builder]
        # CUDA kernels come first: only the kernels are built for them, so the operators must be correct.
        for is_emulated in (True, False):
            for mutants in rounds([mutant for mutant in native if mutant.is_emulated == is_emulated]):
                judge_all(operators, mutants)

    def judge_builder(tree: Tree) -> None:
        with suppress(queue.Empty):
            while True:
                judge_all(tree, [waiting.get_nowait()])

    with ThreadPoolExecutor(len(others) + 1) as pool:
        for done in [pool.submit(judge_operators), *(pool.submit(judge_builder, tree) for tree in others)]:
            done.result()
    operators.build()
    for is_builder, tree in ((True, others[0]), (False, operators)):
        some = {mutant: result for mutant, result in results.items() if mutant.is_builder == is_builder}
        results |= without_false_alarms(some, tree)
    return results


def without_false_alarms(results: Mapping[Mutant, Result], tree: Tree) -> dict[Mutant, Result]:
    """Correct the results by tests that also fail without a wrong line."""
    kinds: dict[tuple[tuple[str, str], ...], dict[str, None]] = {}
    for mutant, result in results.items():
        if result.outcome in (Outcome.KILLED, Outcome.CRASHED, Outcome.HUNG) and result.by:
            kinds.setdefault(tuple(sorted(tree.variables(mutant).items())), {})[result.by] = None
    failing = {test for variables, tests in kinds.items() for test in tree.failing(list(tests), dict(variables))}
    return {
        mutant: Result(Outcome.BROKEN, f"fails without the mutant, too: {result.by}")
        if result.by in failing
        else result
        for mutant, result in results.items()
    }


def rounds(mutants: Iterable[Mutant]) -> list[list[Mutant]]:
    """Group the mutants for common builds: one for each operator, and those that affect several operators alone."""
    of: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        of.setdefault(mutant.operator, []).append(mutant)
    alone = [[mutant] for mutant in of.pop("", [])]
    return alone + [[each for each in group if each] for group in zip_longest(*of.values())]


def conclude(results: Mapping[Mutant, Result], lines: Mapping[Mutant, int]) -> None:
    """Print the results of the mutants.

    Raises:
        TestsFailed: some survived.
    """
    counts = Counter(result.outcome for result in results.values())
    summary = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome])
    print(f"\n{len(results)} mutants: {summary}")
    left = {mutant: result for mutant, result in results.items() if not result.outcome.is_found}
    if not left:
        return
    rows = [("", "line", "", "", "")]
    for mutant, result in sorted(left.items(), key=lambda pair: pair[0].number):
        change = f"{_short(mutant.right)} -> {_short(mutant.wrong)}"
        place = f"{mutant.file}:{lines[mutant]}"
        rows.append((str(mutant.number), place, result.outcome.value, change, result.by))
    print(table(rows))
    raise TestsFailed(
        f"{len(left)} mutants survived",
        todo="write a test that fails with the wrong line, or choose another line if this one has no effect",
    )


@contextmanager
def _trees(layout: Layout, base_wheel: Path | None, jobs: int) -> Iterator[tuple[Tree, list[Tree]]]:
    """Hold the copy that builds operators, and copies for mutants of the builder, ``jobs`` in all."""
    with ExitStack() as stack:
        copies = [
            stack.enter_context(copied(_COPIES / name)) for name in ["operators", *map(str, range(max(jobs - 1, 1)))]
        ]
        there = replace(layout, natives=(copies[0] / "native",), out=copies[0] / "dist")
        python, variables = stack.enter_context(delivered(there, DEVELOP, base_wheel, jobs))
        shared = {**variables, "OMP_WAIT_POLICY": "passive"}  # other processes need the processors, too
        options = ["--pin", layout.pin, "--native", str(there.native), "--jobs", str(jobs), "--python", str(python)]

        def build() -> tuple[int, str]:
            done = run([sys.executable, "-m", "graft", "develop", *options], cwd=REPOSITORY, check=False)
            return done.returncode, done.stdout

        def with_operators(mutant: Mutant) -> Mapping[str, str]:
            return {**shared, **(emulated_variables(there) if mutant.is_emulated else {})}

        def without_operators(mutant: Mutant) -> Mapping[str, str]:
            is_generator = any(word.startswith("tests/codegen") for word in mutant.tests)
            return {**shared, **({"PYTHONPATH": str(layout.base / "tree")} if is_generator else {})}

        others = [Tree(copy, python, without_operators, lambda: (0, "")) for copy in copies[1:]]
        yield Tree(copies[0], python, with_operators, build), others


def _short(text: str) -> str:
    """Return the text in one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
