"""``make wheels``: build the wheels of a native folder for several pins and Pythons."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graft.core.console import say, table
from graft.core.layout import Layout

from ..environments import named
from .processes import Processes
from .rows import Row, RowsFailed, chosen_rows


@dataclass(frozen=True)
class Wheel:
    """The result of a build.

    Args:
        path: the path of the wheel; None if there is none.
        seconds: how long the command took.
        is_new: whether anything was built.
        error: why there is no wheel.
    """

    path: Path | None
    seconds: float
    is_new: bool
    error: str


def build_wheels(layout: Layout, pins: str, pythons: str, *, jobs: int, thin: Sequence[str] | None = None) -> None:
    """Build the native folders of ``layout`` for each pin on each Python, one after another. Print a table.

    Args:
        layout: the native folders, and the output folder.
        pins, pythons: see ``chosen_rows``.
        jobs: the maximum number of compilers to run at once.
        thin: the options of ``thin-wheel``, for thin wheels.

    Raises:
        GraftError: a pin or a Python was not found, and nothing was built.
        RowsFailed: some wheels could not be built.
    """
    rows = chosen_rows(pins, pythons)
    processes, lines, failed = Processes(), [("torch", "Python", "wheel", "size", "seconds")], 0
    for number, row in enumerate(rows, 1):
        say(f"\n== {number}/{len(rows)}: {row}, {row.python.path}")
        verb = ["build"] if thin is None else ["thin-wheel", *thin]
        wheel = build_row(row, layout, jobs, processes, sys.stderr.write, verb)
        failed += wheel.path is None
        name, size = (wheel.path.name, f"{megabytes(wheel.path.stat().st_size)} MB") if wheel.path else ("failed", "")
        lines.append((row.pin, row.python.release, name, size, wheel.error or f"{wheel.seconds:.1f}"))
    print(f"\n{table(lines)}")
    if failed:
        raise RowsFailed(
            f"{failed} of {len(rows)} wheels could not be built",
            todo="see the errors above; the other wheels are built",
        )


def build_row(
    row: Row,
    layout: Layout,
    jobs: int,
    processes: Processes,
    write: Callable[[str], object],
    verb: Sequence[str] = ("build",),
) -> Wheel:
    """Build one wheel in a process of the row's Python."""
    with tempfile.TemporaryDirectory(prefix="graft-") as folder:
        report = Path(folder) / "report.json"
        done = processes.run(row.python.path, [*verb, *options(row, layout, jobs), "--report", report], write)
        if done.error:
            return Wheel(None, done.seconds, True, done.error)
        made = json.loads(report.read_text(encoding="utf-8"))
    return Wheel(Path(made["wheel"]), done.seconds, bool(made["seconds"]), "")


def options(row: Row, layout: Layout, jobs: int) -> list[str | Path]:
    """Return the options of a row for verbs that handle one pin."""
    return ["--pin", row.pin, "--native", named(layout), "--out", layout.out, "--jobs", str(jobs)]


def megabytes(count: int) -> str:
    """Return a size in the units of package indexes."""
    return f"{count / 1e6:.0f}" if count >= 1e7 else f"{count / 1e6:.1f}"
