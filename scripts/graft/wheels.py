"""``make wheels``: the wheels of a native folder for several pins and Pythons, each built by its Python."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .core.console import say, table
from .core.environments import command_on
from .core.errors import GraftError, PinError, UsageError, run_all
from .core.layout import PATCHES, Layout, TorchVersion
from .core.process import follow
from .core.pythons import Python, find_pythons
from .inputs.pin import known_pins, load_pin
from .options import DEVELOP, THIN, WHEEL, Request


@dataclass(frozen=True)
class Row:
    """A pin on a Python."""

    pin: TorchVersion
    python: Python

    def __str__(self) -> str:
        return f"torch {self.pin} on Python {self.python.release}"


@dataclass(frozen=True)
class Done:
    """A finished command: how long it took, and the last line of its errors; empty if it succeeded."""

    seconds: float
    error: str


def chosen_rows(
    pins: str, pythons: str, *, default_python: str = sys.executable, machine: str = platform.machine()
) -> list[Row]:
    """Return each pin in ``PINS``, or all, on each Python in ``PYTHONS``, or the default.

    Args:
        pins: separated by spaces; empty for all that have wheels.
        pythons: separated by spaces; a path that contains a space may be quoted.
        default_python: used if ``pythons`` is empty.
        machine: the architecture to build for.

    Raises:
        GraftError: a Python was not found, or a pin named by the user has no wheel for one.
    """
    try:
        found = find_pythons(shlex.split(pythons) or [default_python])
    except ValueError as error:
        raise UsageError(f"PYTHONS={pythons}: {error}", todo="close the quotes") from error
    named = list(dict.fromkeys(map(TorchVersion, pins.split())))
    known = named or known_pins(PATCHES, are_wheels_needed=True)
    tags = dict(zip(known, run_all(*(partial(_tags_of, pin) for pin in known)), strict=True))
    rows = [Row(pin, python) for python in found for pin in known]
    without = [row for row in rows if not any(_is_for(tag, row.python, machine) for tag in tags[row.pin])]
    names = ", ".join(map(str, without))
    if without and (named or len(without) == len(rows)):
        raise PinError(f"no pin has a wheel of {names}", todo="leave these out, or add the wheels with `make pin`")
    if without:
        say(f"left out, since no pin has a wheel: {names}")
    return [row for row in rows if row not in without]


def _is_for(tag: str, python: Python, machine: str) -> bool:
    return tag.startswith(f"{python.tag}-") and tag.endswith(machine)


def _tags_of(pin: TorchVersion) -> list[str]:
    return list(load_pin(PATCHES / pin.release, pin).sha256)


def build_wheels(request: Request) -> None:
    """Build the native folders for each pin on each Python, one after another. Print a table.

    Raises:
        GraftError: a pin or a Python was not found, and nothing was built; or some wheels could not be built.
    """
    if request.wheel:
        raise UsageError(f"WHEEL={request.wheel}: each pin and Python has its own base wheel", todo="leave it out")
    if request.delivery == DEVELOP:
        raise UsageError(f"DELIVERY={DEVELOP}: this builds no wheels", todo=f"set it to {WHEEL} or {THIN}")
    verb = ["build"]
    if request.delivery == THIN:
        verb = [THIN, "--version", request.version, *(["--name", request.name] if request.name else [])]
    rows = chosen_rows(request.pins, request.pythons, default_python=request.python, machine=request.layout.machine)
    lines, failed = [("torch", "Python", "wheel", "size", "seconds")], 0
    for number, row in enumerate(rows, 1):
        say(f"\n== {number}/{len(rows)}: {row}, {row.python.path}")
        done, wheel, _ = build_row(row, request.layout, request.jobs, sys.stderr.write, verb)
        failed += wheel is None
        name, size = (wheel.name, f"{megabytes(wheel.stat().st_size)} MB") if wheel else ("failed", "")
        lines.append((row.pin, row.python.release, name, size, done.error or f"{done.seconds:.1f}"))
    print(f"\n{table(lines)}")
    if failed:
        raise GraftError(
            f"{failed} of {len(rows)} wheels could not be built",
            todo="see the errors above; the other wheels are built",
        )


def build_row(
    row: Row, layout: Layout, jobs: int, write: Callable[[str], object], verb: Sequence[str] = ("build",)
) -> tuple[Done, Path | None, bool]:
    """Build one wheel. Return how it went, the wheel if there is one, and whether anything was built."""
    with tempfile.TemporaryDirectory(prefix="graft-") as folder:
        report = Path(folder) / "report.json"
        done = run_verb(row, layout, jobs, ["graft", *verb, "--report", report], write)
        if done.error:
            return done, None, True
        made = json.loads(report.read_text(encoding="utf-8"))
    return done, Path(made["path"]), bool(made["seconds"])


def run_verb(row: Row, layout: Layout, jobs: int, words: Sequence[str | Path], write: Callable[[str], object]) -> Done:
    """Run a verb of a module, the first of ``words``, with the row's Python and pin. Each line of output is passed to
    ``write``.
    """
    start, output = time.perf_counter(), [""]

    def read(line: str) -> None:
        write(line)
        output.append(line)

    of_row: list[str | Path] = ["--pin", row.pin, "--native", shlex.join(map(str, layout.natives)), "--out", layout.out]
    how = {"--launcher": layout.launcher, "--cuda-archs": layout.cuda.archs}
    of_row += [word for flag, value in how.items() if value for word in (flag, value)]
    module, verb, *more = words
    command: list[str | Path] = [*command_on(row.python.path, module), verb, *of_row, "--jobs", str(jobs), *more]
    code = follow(command, read, env={"PYTHONUTF8": "1"})
    return Done(time.perf_counter() - start, error_of(code, output))


def error_of(code: int, output: Sequence[str]) -> str:
    """Return the last error, or else the last line, that a command printed; empty if it succeeded."""
    if code == 0:
        return ""
    errors = [line.removeprefix("error: ") for line in output if line.startswith("error: ")]
    others = [line for line in output if line.strip()]
    return (errors or others or [f"exit code {code}"])[-1].strip()


def megabytes(count: int) -> str:
    """Return a size in the units of package indexes."""
    return f"{count / 1e6:.0f}" if count >= 1e7 else f"{count / 1e6:.1f}"
