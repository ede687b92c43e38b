"""``make bench-build``: measure how long ``make patch-and-build`` takes, in a copy of this repository.

It times the command that users type, with the native folder as it is. For comparison it also times
``torch.utils.cpp_extension.load_inline`` of one function, with the built wheel.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graft.core.console import say
from graft.core.errors import CommandError, UsageError
from graft.core.files import write_atomically
from graft.core.layout import INTERPRETER, Layout
from graft.core.process import run
from graft.inputs.native import load_native

from .edits import (
    ADDED,
    DOCS_EDITED,
    INLINE,
    KERNEL_EDITED,
    REMOVED,
    Edit,
    add_operator,
    copied,
    edits_of,
    environment_with,
    time_inline,
)
from .run import is_shipped

_NOTHING, _UNCHANGED = "from nothing", "unchanged"

WHEEL, DEVELOP = "patch-and-build", "develop"

# The aim for `make develop` after an edit on two cores, in seconds.
_AIMS_OF_DEVELOP = {KERNEL_EDITED: 4, DOCS_EDITED: 1, ADDED: 12}


@dataclass(frozen=True)
class Timed:
    """One build: the seconds of the command and of each step, and the name of the wheel."""

    seconds: float
    steps: dict[str, float]
    wheel: str = ""


@dataclass
class Row:
    """A row of the table.

    Args:
        name: what was done before the build, or what was built for comparison.
        about: the edited file, or another remark.
        aim: the aim on two cores, in seconds; None for comparisons.
        left_out: why it cannot be measured; empty if it can.
        edit: what is done before each build, if anything.
        verb: the timed target of make.
        runs: the measurements.
    """

    name: str
    about: str
    aim: float | None
    left_out: str = ""
    edit: Edit | None = None
    verb: str = WHEEL
    runs: list[Timed] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """The seconds of each run, in order."""
        return [timed.seconds for timed in self.runs]

    @property
    def verdict(self) -> str:
        """Whether the median meets the aim, and by how much."""
        if self.aim is None or not self.runs:
            return ""
        left = self.aim - statistics.median(self.seconds)
        return f"{'met' if left >= 0 else 'missed'} by {_seconds(abs(left))}"


def rows_of(layout: Layout, only: Sequence[str]) -> list[Row]:
    """Return the requested rows, or all. Those that cannot be measured contain the reason.

    Raises:
        UsageError: there is no such row.
    """
    edits = edits_of(load_native(layout.native))
    rows = [Row(_NOTHING, "the builder's environment and the base wheel, too", 100), Row(_UNCHANGED, "", 0.3)]
    rows += [Row(edit.name, edit.about, edit.aim, edit.left_out, edit) for edit in edits]
    rows += [
        Row(f"{DEVELOP}, {edit.name}", edit.about, _AIMS_OF_DEVELOP[edit.name], edit.left_out, edit, DEVELOP)
        for edit in edits_of(load_native(layout.native), first=100)
        if edit.name in _AIMS_OF_DEVELOP
    ]
    rows += [Row(name, about, None) for name, (_, _, about) in INLINE.items()]
    if unknown := sorted(set(only) - {row.name for row in rows}):
        names = ", ".join(f'"{row.name}"' for row in rows)
        raise UsageError(f"--only {unknown[0]}: there is no such row", todo=f"choose one of {names}")
    return [row for row in rows if not only or row.name in only]


def list_builds(layout: Layout) -> None:
    """Print the rows with their aims."""
    for row in rows_of(layout, []):
        aim = f"{row.aim:g} s" if row.aim is not None else ""
        print(f"{row.name:28}{aim:>7}  {f'left out: {row.left_out}' if row.left_out else row.about}".rstrip())


def bench_build(
    layout: Layout,
    *,
    base_wheel: Path | None,
    jobs: int,
    only: Sequence[str],
    repeat: int | None,
    folder: Path,
    keep: bool,
    result: Path,
    markdown: Path | None,
) -> None:
    """Time builds of a copy of this repository. Print a table, and write it as JSON and Markdown.

    Args:
        layout: the pin and the native folder, which is copied, too.
        base_wheel: path of the base wheel; None to download it with pip.
        jobs: the maximum number of compilers to run at once.
        only: the names of the rows to measure; empty for all.
        repeat: how often each build is timed; None for once from nothing, and three times the others.
        folder: the folder of the copy; kept if ``keep``.
        result, markdown: the output files.
    """
    rows = rows_of(layout, only)
    about = conditions(layout, jobs)
    say(about["title"])
    if about["is_busy"]:
        say("warning: the machine is busy, so builds take longer")
    with copied(layout, folder, keep) as native:
        builds = _Builds(folder, native, layout.pin, base_wheel, jobs)
        for row in (row for row in rows if not row.left_out):
            times = repeat or (1 if row.name == _NOTHING else 3)
            builds.prepare(row, rows, times)
            for number in range(1, times + 1):
                row.runs.append(builds.time_row(row, number))
                steps = ", ".join(f"{step} {taken:.1f}" for step, taken in row.runs[-1].steps.items() if taken >= 0.1)
                say(f"{row.name} ({number}/{times}) {row.seconds[-1]:.2f} s" + (f": {steps}" if steps else ""))
            write_atomically(result, json.dumps({**about, "rows": [_as_json(row) for row in rows]}, indent=1) + "\n")
    text = f"{about['title']}:\n\n{table(rows)}"
    print(f"\n{text}", end="")
    if markdown:
        write_atomically(markdown, text)
    say(f"written to {result}" + (f" and {markdown}" if markdown else ""))


def conditions(layout: Layout, jobs: int) -> dict[str, Any]:
    """Return what figures depend on: the processor and its load, the date, what is built."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", info.read_text(encoding="utf-8") if info.is_file() else "", re.M)
    processor, cores = found[1] if found else "unknown processor", len(os.sched_getaffinity(0))
    date, load = datetime.date.today().isoformat(), os.getloadavg()[0]
    native = "native/" if is_shipped(layout) else str(layout.native)
    machine = f"{cores} cores of {processor}, load average {load:.2f} at the start, {date}"
    title = f"`make patch-and-build` of `{native}`, PyTorch {layout.pin}; {machine}"
    described = {"processor": processor, "cores": cores, "jobs": jobs, "date": date, "load": load}
    return {"title": title, **described, "is_busy": load > cores / 4, "pin": layout.pin, "native": native}


class _Builds:
    """Builds in the copy, which reuse nothing of other builds except for pip's cache."""

    def __init__(self, folder: Path, native: Path, pin: str, base_wheel: Path | None, jobs: int) -> None:
        self.folder, self.native = folder, native
        # The environment has the variables of this make, so every variable of the copy's make is given explicitly.
        wheel = base_wheel.resolve() if base_wheel else ""
        self.variables = [f"PIN={pin}", f"JOBS={jobs}", f"NATIVE={native.name}", "OUT=dist", f"WHEEL={wheel}"]
        self.variables += ["BUILD=graft", "SOURCE=", "WATCH=", "ARGS=--timings timings.json"]
        self.base = f"{pin}/{INTERPRETER}/base"
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.environment = {
            "MAKEFLAGS": "",  # a sub-make would share this make's job slots
            "CCACHE_DISABLE": "1",
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(caches / "pip"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def wheel(self) -> Path | None:
        """The wheel of the last build."""
        return max((self.folder / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime_ns, default=None)

    def prepare(self, row: Row, rows: Sequence[Row], times: int) -> None:
        """Prepare the copy for measuring ``row`` ``times`` times."""
        is_added = row.name != REMOVED or any(other.name == ADDED for other in rows)
        for number in range(1, 1 if is_added else times + 1):
            add_operator(self.native, number)
        if not is_added or (row.name != _NOTHING and self.wheel() is None):
            say(f"a build before {row.name}, which is not counted")
            self.build()
        if row.verb == DEVELOP and not self.tree():
            say(f"make develop before {row.name}, which is not counted")
            self.build(DEVELOP)

    def time_row(self, row: Row, number: int) -> Timed:
        """Measure ``row`` for the ``number``-th time.

        Raises:
            CommandError: the build failed, or an edit did not change the wheel, or the wheel changed without an edit.
        """
        if row.name in INLINE:
            wheel = self.wheel()
            assert wheel, "prepare() builds one"
            return Timed(time_inline(row.name, self.folder, wheel, self.environment), {})
        if row.name == _NOTHING:
            for name in ("build", "dist", "cache"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        before = self.made(row.verb)
        if row.edit:
            row.edit.apply(self.native, number)
        timed = self.build(row.verb)
        is_same = before == timed.wheel
        if (row.edit and is_same) or (row.name == _UNCHANGED and not is_same):
            what = "again, despite the edit" if is_same else f"instead of {before}"
            raise CommandError(f"{row.name}: the build wrote {timed.wheel} {what}")
        return timed

    def tree(self) -> str:
        """Return the ``.pth`` file's text, which selects the tree of `make develop`; empty if there is none."""
        found = list((self.folder / "develop-environment").glob("lib/python*/site-packages/torch_graft.pth"))
        return found[0].read_text(encoding="utf-8") if found else ""

    def made(self, verb: str) -> str:
        """Return a fingerprint of what ``verb`` built last."""
        wheel = self.wheel()
        return self.tree() if verb == DEVELOP else wheel.name if wheel else ""

    def build(self, verb: str = WHEEL) -> Timed:
        """Run the command."""
        timings = self.folder / "timings.json"
        timings.unlink(missing_ok=True)
        with self.python(verb) as python:
            start = time.perf_counter()
            run(["make", verb, f"PYTHON={python}", *self.variables], cwd=self.folder, env=self.environment)
            seconds = time.perf_counter() - start
        made = self.made(verb)
        assert made, "a successful build leaves a result"
        return Timed(seconds, json.loads(timings.read_text(encoding="utf-8")), made)

    @contextmanager
    def python(self, verb: str) -> Iterator[str | Path]:
        """Return the Python for ``verb``: for `make develop` that of an environment with the base wheel."""
        if verb == WHEEL:
            yield sys.executable
            return
        (base,) = (self.folder / "build" / self.base).glob("*.whl")
        with environment_with(base, self.folder / "develop-environment", "numpy") as python:
            yield python


def _as_json(row: Row) -> dict[str, Any]:
    summary = {"min": min(row.seconds), "median": statistics.median(row.seconds)} if row.runs else {}
    described = {"name": row.name, "about": row.about, "aim": row.aim, "left_out": row.left_out}
    return {**described, **summary, "verdict": row.verdict, "runs": [asdict(timed) for timed in row.runs]}


def table(rows: Sequence[Row]) -> str:
    """Return the measured rows as a Markdown table, and the reasons why others were not measured."""
    lines = [("", "runs", "min", "median", "aim", ""), ("---", "--:", "--:", "--:", "--:", "---")]
    for row in (row for row in rows if row.runs):
        figures = (str(len(row.runs)), _seconds(min(row.seconds)), _seconds(statistics.median(row.seconds)))
        aim = f"{row.aim:g} s" if row.aim is not None else ""
        lines.append((f"{row.name} ({row.about})" if row.about else row.name, *figures, aim, row.verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines]
    text += [f"\nLeft out: {row.name}, since {row.left_out}." for row in rows if row.left_out]
    return "\n".join(text) + "\n"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"
