"""The result of a build, and the messages about it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.console import say
from ..core.files import sha256_of_file
from ..core.places import WHEEL, note_place


@dataclass(frozen=True)
class Delivered:
    """The result of a build.

    Args:
        path: the wheel, or the tree.
        seconds: how long each step took; empty if nothing had to be done.
    """

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def report(self) -> dict[str, Any]:
        """The result as JSON."""
        return {"path": str(self.path), "seconds": self.seconds}


def announce(wheel: Path, seconds: float) -> None:
    """Print the wheel's path, size and sha256, the time of the build, and how to install the wheel."""
    note_place(WHEEL, wheel)
    say(f"{wheel}\n  {wheel.stat().st_size:,} bytes, sha256 {sha256_of_file(wheel)}\n  {seconds:.1f} s in all")
    say(how_to_install(wheel))


def how_to_install(wheel: Path) -> str:
    """Return the command that installs this wheel. OUT may also hold wheels of other folders, so the path must be
    exact.
    """
    return f"  to install it: pip install {shlex.quote(str(wheel))}"
