"""``make bench-build``: measure how long builds take after edits, in a copy of this repository.

It times the commands that users type, with the native folder as it is.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from graft.core.console import say
from graft.core.errors import CommandError, UsageError
from graft.core.files import Layer, write_atomically
from graft.core.layout import HOME, INTERPRETER, Layout
from graft.core.process import run
from graft.inputs.native import load_native
from graft.options import Request

from .edits import Edit, add_operator, edits_of
from .environments import copied_repository, environment_in
from .markdown import markdown_table, write_figures
from .processor import machine
from .stopwatch import Stopwatch, measured
from .testing import is_shipped
from .timeline import timeline

NOTHING, UNCHANGED = "from nothing", "unchanged"
WHEEL, DEVELOP = "patch-and-build", "develop"

# What the builds of the copy report.
REPORT = "report.json"


@dataclass
class TimedBuild:
    """A row of the table: what was done before the build, and the timed target of make.

    Args:
        aim: the aim on two cores, in seconds.
        times: of each measured build, in order.
    """

    name: str
    aim: float
    edit: Edit | None = None
    verb: str = WHEEL
    times: list[Stopwatch] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The name, and the edited file."""
        return f"{self.name} ({self.about})" if self.about else self.name

    @property
    def seconds(self) -> list[float]:
        """How long each build took."""
        return [each.wall for each in self.times]

    @property
    def cpu(self) -> float:
        """The processors' seconds, the median."""
        return statistics.median(each.cpu for each in self.times)

    @property
    def about(self) -> str:
        """The edited file."""
        return self.edit.file.as_posix() if self.edit and self.edit.file and self.edit.file.name else ""


def rows_of(layout: Layout, only: Sequence[str]) -> list[TimedBuild]:
    """Return the requested rows, or all that apply to the native folder."""
    edits = [edit for edit in edits_of(load_native(layout.native)) if edit.file is not None]
    rows = [
        TimedBuild(NOTHING, 100),
        TimedBuild(UNCHANGED, 0.3),
        *(TimedBuild(edit.name, edit.aim, edit) for edit in edits),
    ]
    for edit in edits:
        if edit.aim_of_develop:
            rows.append(TimedBuild(f"{DEVELOP}, {edit.name}", edit.aim_of_develop, edit, DEVELOP))
    if unknown := sorted(set(only) - {row.name for row in rows}):
        names = ", ".join(f'"{row.name}"' for row in rows)
        raise UsageError(f"--only {unknown[0]}: there is no such row for this folder", todo=f"choose one of {names}")
    return [row for row in rows if not only or row.name in only]


def time_builds(request: Request, given: argparse.Namespace) -> None:
    """Time builds, or list the rows with their aims."""
    if not given.list:
        if given.write and given.only:
            raise UsageError("--write is for all rows", todo="leave out --only")
        rows = bench_build(request, only=given.only, repeat=given.repeat)
        if given.write:
            write_figures("builds", medians(rows), f"Medians on {machine()}")
        return
    for row in rows_of(request.layout, []):
        print(f"{row.name:28}{row.aim:>5g} s  {row.about}".rstrip())


def bench_build(
    request: Request,
    *,
    only: Sequence[str],
    repeat: int | None,
    folder: Path = HOME / "bench-build",
) -> list[TimedBuild]:
    """Time builds of a copy of this repository, and print a table.

    Args:
        request: the pin and the native folder, which is copied, too.
        only: the names of the rows to measure; empty for all.
        repeat: how often each build is timed; None for once from nothing, and three times the others.
        folder: the folder of the copy, which is deleted.
    """
    layout = request.layout
    rows, title = rows_of(layout, only), conditions(layout)
    say(title)
    with copied(layout, folder) as native:
        builds = _Builds(folder, native, request)
        for row in rows:
            times = repeat or (1 if row.name == NOTHING else 3)
            for number in range(1, times + 1):
                row.times.append(taken := builds.time_row(row))
                say(f"{row.name} ({number}/{times}) {taken.wall:.2f} s, {taken.cpu:.1f} s of CPU time")
    print(f"\n{title}:\n\n{table(rows)}", end="")
    return rows


def conditions(layout: Layout) -> str:
    """Return what figures depend on: what is built, the processor and its load, the date."""
    native = "native/" if is_shipped(layout) else str(layout.native)
    load, date = os.getloadavg()[0], datetime.date.today().isoformat()
    where = f"{machine()}, load average {load:.2f} at the start, {date}"
    return f"`make {WHEEL}` of `{native}`, PyTorch {layout.pin}; {where}"


@contextmanager
def copied(layout: Layout, folder: Path) -> Iterator[Path]:
    """Hold a copy of this repository in ``folder``, and yield the native folder there."""
    with copied_repository(folder):
        native = folder / ("native" if is_shipped(layout) else "measured")
        if not is_shipped(layout):
            shutil.copytree(layout.native, native, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        yield native


class _Builds:
    """Builds in the copy, which reuse nothing of other builds except for pip's cache."""

    def __init__(self, folder: Path, native: Path, request: Request) -> None:
        self.folder, self.native, self.numbers = folder, native, itertools.count(1)
        # The environment has the variables of this make, so every variable of the copy's make is given explicitly.
        pin, wheel = request.pin, request.wheel or ""
        self.variables = [f"PIN={pin}", f"JOBS={request.jobs}", f"NATIVE={native.name}", "OUT=dist", f"WHEEL={wheel}"]
        self.variables += ["BUILD=graft", "SOURCE=", "WATCH=", f"ARGS=--report {REPORT}"]
        self.base = folder / "build" / pin / INTERPRETER / "base"
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.environment: Mapping[str, str] = {
            "MAKEFLAGS": "",  # a sub-make would share this make's job slots
            "CCACHE_DISABLE": "1",
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(caches / "pip"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def time_row(self, row: TimedBuild) -> Stopwatch:
        """Return the time of a build. What must be there before is built first, and not counted."""
        if row.name == NOTHING:
            for name in ("build", "dist", "cache"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        else:
            self.prepare(row)
        before = self.made(row.verb)
        if row.edit and row.edit.file is not None:
            row.edit.change(self.native / row.edit.file, next(self.numbers))
        taken = self.build(row.verb)
        if row.name == NOTHING:
            self.draw(taken.wall)
        after = self.made(row.verb)
        if (row.edit and before == after) or (row.name == UNCHANGED and before != after):
            raise CommandError(f"{row.name}: the build wrote {after}; before it was {before}")
        return taken

    def draw(self, seconds: float) -> None:
        """Draw the timeline of a build from nothing, which took ``seconds``, beside the copy."""
        (log,) = self.base.parent.glob("work-*/.ninja_log")
        steps = json.loads((self.folder / REPORT).read_text(encoding="utf-8"))["seconds"]
        picture = timeline(log.read_text(encoding="utf-8"), steps, seconds)
        write_atomically(self.folder.with_name("bench-build.svg"), picture)

    def prepare(self, row: TimedBuild) -> None:
        is_lacking = row.name == "operator removed" and not [*self.native.glob("bench_scale_*.cpp")]
        if is_lacking:
            add_operator(self.native, next(self.numbers))
        for verb in dict.fromkeys((WHEEL, row.verb)):
            if is_lacking or not self.made(verb):
                say(f"make {verb} before {row.name}, which is not counted")
                self.build(verb)

    def made(self, verb: str) -> str:
        """Return what identifies the result of ``verb``: the wheel's name, or the text that selects develop's tree."""
        if verb == WHEEL:
            wheels = sorted((self.folder / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime_ns)
            return wheels[-1].name if wheels else ""
        found = [*(self.folder / "develop").glob("lib/python*/site-packages/torch_graft.pth")]
        return found[0].read_text(encoding="utf-8") if found else ""

    def build(self, verb: str) -> Stopwatch:
        """Run the command. Return its time."""
        with self.python(verb) as python, measured() as taken:
            run(["make", verb, f"PYTHON={python}", *self.variables], cwd=self.folder, env=self.environment)
        return taken

    @contextmanager
    def python(self, verb: str) -> Iterator[str | Path]:
        """Return the Python for ``verb``: for `make develop` that of an environment with the base wheel."""
        if verb == WHEEL:
            yield sys.executable
            return
        requirements = self.folder / "develop.txt"
        requirements.write_text("numpy\n", encoding="utf-8")
        wheel = next(self.base.glob("*.whl"))
        with environment_in(self.folder / "develop", wheel, requirements, [Layer("imported", _import)]) as python:
            yield python


def _import(environment: Path) -> None:
    """Write bytecode into the environment, as users have it: from pip, or from their first import."""
    run([environment / "bin/python", "-I", "-c", "import torch"])


def table(rows: Sequence[TimedBuild]) -> str:
    """Return the rows as a Markdown table."""
    lines = [("", "runs", "min", "median", "CPU", "aim", ""), ("---", "--:", "--:", "--:", "--:", "--:", "---")]
    for row in rows:
        median = statistics.median(row.seconds)
        verdict = f"{'met' if median <= row.aim else 'missed'} by {_seconds(abs(row.aim - median))}"
        least, usual, cpu = map(_seconds, (min(row.seconds), median, row.cpu))
        lines.append((row.title, str(len(row.times)), least, usual, cpu, f"{row.aim:g} s", verdict))
    return markdown_table(lines)


def medians(rows: Sequence[TimedBuild]) -> str:
    """Return the medians and the aims as a Markdown table."""
    figures = [(row.title, f"{statistics.median(row.seconds):.1f}", f"{row.cpu:.1f}", f"{row.aim:g}") for row in rows]
    return markdown_table([("", "seconds", "of CPU time", "aim"), ("---", "--:", "--:", "--:"), *figures])


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"
