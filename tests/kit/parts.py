"""Run the parts of the tests with pytest, and report the results."""

from __future__ import annotations

import re
import resource
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from graft.core.console import Steps, say
from graft.core.errors import GraftError
from graft.core.layout import REPOSITORY

from .environments import run_python
from .seconds import costs_of_files, keep

# pytest's exit code if no test ran (pytest.ExitCode.NO_TESTS_COLLECTED), for example if -k matches only tests of
# another part.
_NOTHING_COLLECTED = 5

# Each process imports torch and needs about a gigabyte.
_MOST_PROCESSES = 8

# The number of lines shown if pytest crashed.
_MOST_LINES = 60

# Pytest's progress, and the end of its output.
_PROGRESS = re.compile(r"\[ *(\d+%)\]")
_FAULTS = re.compile(r"=+ (?:FAILURES|ERRORS)")
_SUMMARY = re.compile(r"=* ?(\d+ (?:passed|failed|error|skipped).*?)(?: in [\d.]+s.*)?$")


@dataclass(frozen=True)
class Suite:
    """A part of the tests.

    Args:
        kind: its name in ``--parts``; parts of several native folders share it.
        name: its name in messages.
        paths: the folders and files of the tests.
        variables: environment variables in addition to those of all parts.
        spread: how pytest-xdist distributes the tests (``--dist``), for tests that share expensive fixtures.
        prepare: builds what only this part needs, and returns more environment variables.
    """

    kind: str
    name: str
    paths: list[Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    spread: str = "worksteal"
    prepare: Callable[[], Mapping[str, str]] = dict


class Outcome(Enum):
    """The result of a part."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHOSEN = "not chosen"


class TestsFailed(GraftError):
    """A test failed, or none ran."""

    exit_code = 12


def run_parts(
    python: Path,
    parts: Sequence[Suite],
    variables: Mapping[str, str],
    extra: Sequence[str],
    junit: Path | None = None,
    are_skips_known: bool = False,
    jobs: int = 1,
    is_measured: bool = False,
) -> None:
    """Run parts of the tests, even if an earlier one fails.

    Args:
        python: the Python that runs them.
        parts: the parts to run.
        variables: environment variables of all parts.
        extra: arguments for pytest.
        junit: a folder for the results of each part, as XML; None for none.
        are_skips_known: whether the skips must be those of tests/skips.yaml.
        jobs: the maximum number of processes that run tests.
        is_measured: whether parts that run whole write what they cost.
    """
    outcomes = {}
    for number, part in enumerate(parts, 1):
        results = junit and junit / f"{number}-{part.kind}.xml"
        plugin = ["-p", "tests.kit.skips", "--skips-of", part.kind, *([] if extra else ["--all-of-it"])]
        options = plugin if are_skips_known else []
        is_whole = is_measured and not extra
        options += ["-p", "tests.kit.costs", "--costs", str(costs_of_files(part.kind))] if is_whole else []
        begun = time.monotonic()
        more = {**variables, **part.variables, **part.prepare()}
        prepared, used = time.monotonic(), _cpu_seconds()
        outcome = outcomes[part.name] = run_pytest(python, part, more, extra, results, jobs, options)
        if is_whole and outcome is Outcome.PASSED:
            seconds = {"prepare": prepared - begun, "wall": time.monotonic() - prepared, "cpu": _cpu_seconds() - used}
            keep(part.kind, seconds, min(jobs, _MOST_PROCESSES))
    conclude(outcomes, extra)


def _cpu_seconds() -> float:
    """Return the CPU seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def conclude(outcomes: Mapping[str, Outcome], extra: Sequence[str]) -> None:
    """Print the result of the parts. A part that failed is an error, and so is a run without a test."""
    failed = [name for name, outcome in outcomes.items() if outcome is Outcome.FAILED]
    without = [name for name, outcome in outcomes.items() if outcome is Outcome.NOT_CHOSEN]
    if failed:
        raise TestsFailed(f"tests failed: {', '.join(failed)}")
    if len(without) == len(outcomes):
        if not extra:
            raise TestsFailed("there are no tests", todo="write samples or tests for the operators")
        what = f"no test ran; `{shlex.join(extra)}` selects none"
        raise TestsFailed(what, todo="compare with the names that `--collect-only -q` prints")
    if without:
        say(f"no test was selected from {', '.join(without)}")
    say("all selected tests passed" if extra else "all tests passed")


def run_pytest(
    python: Path,
    part: Suite,
    more: Mapping[str, str],
    extra: Sequence[str],
    junit: Path | None = None,
    jobs: int = 1,
    options: Sequence[str] = (),
) -> Outcome:
    """Run the tests of a part. Return whether they passed, or ``extra`` selected none.

    Without ``extra``, one line shows the progress, and pytest's own output only if a test fails.
    """
    config = f"--config-file={REPOSITORY / 'pyproject.toml'}"
    options = ["-q" if extra else "-v", "-p", "no:cacheprovider", config, *options]
    if junit:
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_bytes(b"")  # it stays empty if pytest crashes
        options.append(f"--junit-xml={junit}")
    if (processes := min(jobs, _MOST_PROCESSES)) > 1:
        options += ["--numprocesses", str(processes), "--dist", part.spread]
        # Two tests at once are faster than one test with two threads.
        more = {"OMP_NUM_THREADS": "1", **more}
    command: list[str | Path] = ["-m", "pytest", *options, *extra, *part.paths]
    if not extra:
        return _run_quietly(python, part.name, command, more)
    say(f"\n== tests of {part.name}")
    code = run_python(python, command, more)
    if code == _NOTHING_COLLECTED:
        return Outcome.NOT_CHOSEN
    return Outcome.PASSED if code == 0 else Outcome.FAILED


def _run_quietly(python: Path, name: str, command: Sequence[str | Path], more: Mapping[str, str]) -> Outcome:
    printed: list[str] = []
    with Steps().step(f"test {name}") as line:

        def read(text: str) -> None:
            printed.append(text)
            if found := _PROGRESS.search(text):
                line.update(found[1])

        code = run_python(python, command, more, read)
        line.note = next((text[1] for text in map(_SUMMARY.match, reversed(printed)) if text), "")
    if code == 0:
        return Outcome.PASSED
    faults = (number for number, text in enumerate(printed) if _FAULTS.match(text))
    print("".join(printed[next(faults, -_MOST_LINES) :]), flush=True)
    return Outcome.FAILED
