"""The rows: which pins on which Pythons."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from functools import partial

from graft.core.console import say
from graft.core.errors import GraftError, PinError, UsageError, run_all
from graft.core.layout import REPOSITORY
from graft.inputs.pin import known_pins, load_pin

from .pythons import Python, find_pythons

_PATCHES = REPOSITORY / "patches"

# The default of `make test-matrix`: each pin on one Python, and one pin on others.
_PYTHON = "3.11"
_PIN, _OTHER_PYTHONS = "2.14.1", ("3.10", "3.12", "3.13")


class RowsFailed(GraftError):
    """Some rows could not be built, or their tests failed."""

    exit_code = 16


@dataclass(frozen=True)
class Row:
    """A pin on a Python."""

    pin: str
    python: Python

    def __str__(self) -> str:
        return f"torch {self.pin} on Python {self.python.release}"


def chosen_rows(pins: str, pythons: str, *, default_python: str = sys.executable) -> list[Row]:
    """Return each pin in ``PINS``, or all, on each Python in ``PYTHONS``, or the default.

    Args:
        pins: separated by spaces; empty for all that have wheels.
        pythons: separated by spaces; a path that contains a space may be quoted.
        default_python: used if ``pythons`` is empty.

    Raises:
        GraftError: a Python was not found, or a pin named by the user has no wheel for one.
    """
    try:
        found = find_pythons(shlex.split(pythons) or [default_python])
    except ValueError as error:
        raise UsageError(f"PYTHONS={pythons}: {error}", todo="close the quotes") from error
    named = list(dict.fromkeys(pins.split()))
    known = named or known_pins(_PATCHES, are_wheels_needed=True)
    tags = dict(zip(known, run_all(*(partial(_tags_of, pin) for pin in known)), strict=True))
    rows = [Row(pin, python) for python in found for pin in known]
    without = [row for row in rows if not any(tag.startswith(f"{row.python.tag}-") for tag in tags[row.pin])]
    names = ", ".join(map(str, without))
    if without and (named or len(without) == len(rows)):
        raise PinError(f"no pin has a wheel of {names}", todo="leave these out, or add the wheels with `make pin`")
    if without:
        say(f"left out, since no pin has a wheel: {names}")
    return [row for row in rows if row not in without]


def rows_of_matrix(pins: str, pythons: str) -> list[Row]:
    """Return the rows of ``make test-matrix``, by default the table's own.

    Raises:
        GraftError: see ``chosen_rows``.
    """
    if pins or pythons:
        return chosen_rows(pins, pythons, default_python=_PYTHON)
    find_pythons([_PYTHON, *_OTHER_PYTHONS])  # lists all that are missing
    return [*chosen_rows("", _PYTHON), *chosen_rows(_PIN, " ".join(_OTHER_PYTHONS))]


def _tags_of(pin: str) -> list[str]:
    return list(load_pin(_PATCHES / pin.partition("+")[0], pin).sha256)
