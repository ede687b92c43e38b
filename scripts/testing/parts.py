"""Parts of the tests: what pytest runs of each, and what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ..common.console import say
from ..common.errors import GraftError
from .environments import run_python

# pytest's exit code where no test ran (pytest.ExitCode.NO_TESTS_COLLECTED), as when -k chooses tests of another part.
_NOTHING_COLLECTED = 5


@dataclass(frozen=True)
class Part:
    """A part of the tests.

    Args:
        kind: what ``--parts`` calls it; that of several native folders is the same.
        name: as messages have it.
        paths: where the tests are.
        variables: what they run with, beyond what all parts do.
    """

    kind: str
    name: str
    paths: list[Path]
    variables: Mapping[str, str] = field(default_factory=dict)


class Outcome(Enum):
    """What came of a part of the tests."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHOSEN = "not chosen"


class TestsFailed(GraftError):
    """A test failed, or none ran."""

    exit_code = 12


def run_parts(
    python: Path, parts: Sequence[Part], variables: Mapping[str, str], extra: Sequence[str], junit: Path | None = None
) -> None:
    """Run parts of the tests, all of them even if the first fails; the results of each go into the folder ``junit``.

    Raises:
        TestsFailed: as ``conclude``.
    """
    outcomes = {}
    for number, part in enumerate(parts, 1):
        more = {**variables, **part.variables}
        results = junit / f"{number}-{part.kind}.xml" if junit else None
        if results:  # it stays empty if pytest crashes
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_bytes(b"")
        outcomes[part.name] = run_pytest(python, part.name, part.paths, more, extra, results)
    conclude(outcomes, extra)


def conclude(outcomes: Mapping[str, Outcome], extra: Sequence[str]) -> None:
    """Say what came of the parts of the tests.

    Raises:
        TestsFailed: naming the parts that failed; or no part ran a test.
    """
    failed = [name for name, outcome in outcomes.items() if outcome is Outcome.FAILED]
    without = [name for name, outcome in outcomes.items() if outcome is Outcome.NOT_CHOSEN]
    if failed:
        raise TestsFailed(f"tests failed: {', '.join(failed)}")
    if len(without) == len(outcomes):
        raise TestsFailed(
            f"no test ran; `{shlex.join(extra)}` chooses none" if extra else "no test ran, there is none",
            todo="look at the names that `--collect-only -q` prints"
            if extra
            else "give the operators samples or tests",
        )
    if without:
        say(f"no test was chosen of {', '.join(without)}")
    say("all chosen tests passed" if extra else "all tests passed")


def run_pytest(
    python: Path,
    name: str,
    paths: Sequence[Path],
    more: Mapping[str, str],
    extra: Sequence[str],
    junit: Path | None = None,
) -> Outcome:
    """Run the tests in ``paths``; return whether they passed, or ``extra`` chose none of them."""
    say(f"\n== tests of {name}")
    options = ["-q", "-p", "no:cacheprovider", *([f"--junit-xml={junit}"] if junit else []), *extra]
    code = run_python(python, ["-m", "pytest", *options, *paths], more)
    if extra and code == _NOTHING_COLLECTED:
        return Outcome.NOT_CHOSEN
    return Outcome.PASSED if code == 0 else Outcome.FAILED
