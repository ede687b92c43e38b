"""The results of the rows, kept as JSON so that an interrupted matrix can continue, and shown as a Markdown table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from graft.core.errors import UsageError
from graft.core.files import write_atomically

from .wheels import megabytes

_HEAD = ("PyTorch", "Python", "CUDA", "architectures", "wheel", "added", "build", "operators' tests", "wheel's tests")


@dataclass(frozen=True)
class Counts:
    """The counts of one kind of tests, and their seconds; incomplete if pytest crashed."""

    passed: int
    skipped: int
    failed: int
    seconds: float
    is_crashed: bool = False

    def __str__(self) -> str:
        counts = {"failed": self.failed, "passed": self.passed, "skipped": self.skipped}
        said = [f"{count} {name}" for name, count in counts.items() if count or name == "passed"]
        return f"{'crashed; ' if self.is_crashed else ''}{', '.join(said)}, {self.seconds:.0f} s"


@dataclass(frozen=True)
class Result:
    """The result of a row.

    Args:
        native: the native folders.
        pin, python: the row.
        parts: of the tests.
        extra: arguments for pytest.
        date: when it was tested.
        machine: the processor.
        wheel: its file name; empty if there is none.
        size, added, cuda, architectures: the content of the wheel.
        build: the seconds of its build; None if it was up to date.
        tests: the counts by kind.
        error: what failed; empty if nothing did.
    """

    native: str
    pin: str
    python: str
    parts: Sequence[str]
    extra: str
    date: str
    machine: str
    wheel: str = ""
    size: int = 0
    added: int = 0
    cuda: str = ""
    architectures: Sequence[str] = ()
    build: float | None = None
    tests: Mapping[str, Counts] = field(default_factory=dict)
    error: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the row."""
        return self.native, self.pin, self.python

    @property
    def note(self) -> str:
        """The conditions that the row's columns do not show."""
        return "; ".join(filter(None, [f"only `pytest {self.extra}`" if self.extra else "", self.error]))


Results = dict[tuple[str, str, str], Result]


def load(path: Path) -> Results:
    """Read the results of earlier rows, if any.

    Raises:
        UsageError: the file has other content.
    """
    if not path.is_file():
        return {}
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        results = [Result(**{**row, "tests": {kind: Counts(**t) for kind, t in row["tests"].items()}}) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: not a file of results: {error}", todo="delete it") from error
    return {result.key: result for result in results}


def save(path: Path, results: Results) -> None:
    """Write the results."""
    write_atomically(path, json.dumps([asdict(result) for result in results.values()], indent=1) + "\n")


def counted(folder: Path) -> dict[str, Counts]:
    """Read pytest's results in ``folder``, by the kind of the part: ``2-operators.xml``.

    If pytest crashed, the file is empty or incomplete.
    """
    found: dict[str, Counts] = {}
    for path in sorted(folder.glob("*-*.xml")):
        kind = path.stem.partition("-")[2]
        before = found.get(kind, Counts(0, 0, 0, 0.0))
        try:
            suites = [dict(suite.attrib) for suite in ElementTree.parse(path).iter("testsuite")]
        except ElementTree.ParseError:
            found[kind] = replace(before, is_crashed=True)
            continue
        total, failures, errors, skipped = (
            sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
        )
        failed, seconds = failures + errors, sum(float(suite.get("time", 0)) for suite in suites)
        found[kind] = Counts(
            passed=before.passed + max(total - failed - skipped, 0),
            skipped=before.skipped + skipped,
            failed=before.failed + failed,
            seconds=round(before.seconds + seconds, 1),
            is_crashed=before.is_crashed,
        )
    return found


def markdown(results: Sequence[Result], title: str) -> str:
    """Return the table, with dates and processors."""
    dates = sorted({result.date for result in results})
    machines = ", ".join(sorted({result.machine for result in results}))
    lines = [_HEAD, ("---",) * 2 + ("---",) * 2 + ("--:",) * 3 + ("---",) * 2, *map(_cells, results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else ""
    notes = [f"\n{each.pin} on Python {each.python}: {each.note}" for each in results if each.note]
    return "\n".join([f"{title}; {machines}; {when}:\n", *(f"| {row} |" for row in rows), *notes]) + "\n"


def _cells(result: Result) -> tuple[str, ...]:
    def tests(kind: str) -> str:
        return str(result.tests[kind]) if kind in result.tests else ""

    if not result.wheel:
        return (result.pin, result.python, *[""] * 4, "failed", "", "")
    architectures = " ".join(result.architectures) or "none"
    return (
        *(result.pin, result.python, result.cuda, architectures if result.cuda else ""),
        *(f"{megabytes(result.size)} MB", f"{megabytes(result.added)} MB"),
        "" if result.build is None else f"{result.build:.0f} s",
        *(tests("operators"), tests("wheel")),
    )
