"""A row of the matrix: which pins there are on which Pythons; commands, and what is read from their output."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from graft.core.console import say
from graft.core.environments import command_on
from graft.core.errors import UsageError, run_all
from graft.core.layout import PATCHES, Layout, TorchVersion
from graft.core.process import follow
from graft.core.pythons import Python, find_pythons
from graft.inputs.pin import known_pins, load_pin


@dataclass(frozen=True)
class Row:
    """A pin on a Python."""

    pin: TorchVersion
    python: Python

    def __str__(self) -> str:
        return f"torch {self.pin} on Python {self.python.release}"


# What pytest counts: in a line of `make test` for each part, or in its own last line.
_OF_PART = re.compile(r"test (.+: \d+ (?:passed|failed|error).*)")
_OF_PYTEST = re.compile(r"(?:=+ )?(\d+ (?:passed|failed|error).* in [\d.]+s.*)")


def chosen_rows(pins: str, pythons: str) -> list[Row]:
    """Return each pin on each Python, both separated by spaces, before anything is built.

    Args:
        pins: empty for all that have a wheel for the Python.
        pythons: a path that contains a space may be quoted.
    """
    try:
        found = find_pythons(shlex.split(pythons))
    except ValueError as error:
        raise UsageError(f"PYTHONS={pythons}: {error}", todo="close the quotes") from error
    named = list(dict.fromkeys(map(TorchVersion, pins.split())))
    known = named or known_pins(PATCHES, are_wheels_needed=True)
    tags = dict(zip(known, run_all(*(partial(_tags_of, pin) for pin in known)), strict=True))
    rows = [Row(pin, python) for python in found for pin in known]
    without = [row for row in rows if not any(map(partial(_is_for, row.python), tags[row.pin]))]
    names = ", ".join(map(str, without))
    if without and (named or len(without) == len(rows)):
        raise UsageError(f"no pin has a wheel of {names}", todo="leave these out, or add the wheels with `make pin`")
    if without:
        say(f"left out, since no pin has a wheel: {names}")
    return [row for row in rows if row not in without]


def _is_for(python: Python, tag: str) -> bool:
    return tag.startswith(f"{python.tag}-") and tag.endswith(platform.machine())


def _tags_of(pin: TorchVersion) -> list[str]:
    return list(load_pin(PATCHES / pin.release, pin).sha256)


def run_verb(
    row: Row, layout: Layout, jobs: int, words: Sequence[str | Path], write: Callable[[str], object]
) -> tuple[str, list[str]]:
    """Run a verb of a module, the first of ``words``, with the row's Python and pin, like ``followed``."""
    module, verb, *more = words
    of_row: list[str | Path] = ["--pin", row.pin, "--native", shlex.join(map(str, layout.natives)), "--out", layout.out]
    command = [*command_on(row.python.path, module), verb, *of_row, "--jobs", str(jobs), *more]
    return followed(command, write, env={"PYTHONUTF8": "1"})


def followed(
    command: Sequence[str | Path], write: Callable[[str], object], *, env: Mapping[str, str], cwd: Path | None = None
) -> tuple[str, list[str]]:
    """Run a command, and pass each line of its output to ``write``. Return its error, and the lines."""
    output: list[str] = []

    def read(line: str) -> None:
        write(line)
        output.append(line)

    return error_of(follow(command, read, cwd=cwd, env=env), output), output


def error_of(code: int, output: Sequence[str]) -> str:
    """Return the last error, or else the last line, that a command printed; empty if it succeeded."""
    if code == 0:
        return ""
    errors = [line.removeprefix("error: ") for line in output if line.startswith("error: ")]
    others = [line for line in output if line.strip()]
    return (errors or others or [f"exit code {code}"])[-1].strip()


def results_in(lines: Sequence[str]) -> list[str]:
    """Return what pytest has counted according to the output of a command."""
    found = [match[1] for match in map(_OF_PART.match, lines) if match]
    return found or [match[1] for match in map(_OF_PYTEST.match, lines) if match]
