"""Results of builds, and their records, so that a build with unchanged inputs does nothing."""

from __future__ import annotations

import hashlib
import json
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..core.console import say
from ..core.files import sha256_of_file, write_atomically
from ..core.layout import HOME, Layout, TorchVersion
from ..options import GRAFT


@dataclass(frozen=True)
class Built:
    """The record of the last build of a native folder."""

    stamp: str
    wheel: str
    size: int
    time: int
    cuda_note: str = ""

    @classmethod
    def of(cls, stamp: str, wheel: Path, cuda_note: str = "") -> Built:
        """Record the wheel built with ``stamp``, and the note of the CUDA settings if they affected it."""
        status = wheel.stat()
        return cls(stamp, str(wheel), status.st_size, status.st_mtime_ns, cuda_note)

    def is_there(self) -> bool:
        """Return whether the wheel still exists, unchanged."""
        path = Path(self.wheel)
        return path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (self.size, self.time)


def load_built(layout: Layout, build: str = GRAFT) -> Built | None:
    """Return the record of the last build of this kind for this native folder and output folder, or None."""
    try:
        return Built(**json.loads(_note(layout, build).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def last_build(natives: tuple[Path, ...], build: str = GRAFT) -> tuple[TorchVersion, Built] | None:
    """Return the pin and the record of the last build of this kind of these native folders, for this Python."""
    of_any_pin = Layout(TorchVersion("*"), natives, Path())
    notes = of_any_pin.work.relative_to(HOME) / f"built-{build}-*.json"
    for note in sorted(HOME.glob(str(notes)), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with suppress(OSError, ValueError, TypeError):
            return TorchVersion(note.parents[2].name), Built(**json.loads(note.read_text(encoding="utf-8")))
    return None


def save_built(layout: Layout, built: Built, build: str = GRAFT) -> None:
    """Write the record ``built``."""
    write_atomically(_note(layout, build), json.dumps(asdict(built), indent=1) + "\n")


def _note(layout: Layout, build: str) -> Path:
    folder = hashlib.sha256(str(layout.out).encode()).hexdigest()[:8]
    return layout.work / f"built-{build}-{folder}.json"


@dataclass(frozen=True)
class Result:
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
    """Print what was built."""
    say(f"{wheel}\n  {wheel.stat().st_size:,} bytes, sha256 {sha256_of_file(wheel)}\n  {seconds:.1f} s in all")
    say(how_to_install(wheel))


def how_to_install(wheel: Path) -> str:
    """Return the command that installs this wheel. OUT may also hold wheels of other folders, so the path must be
    exact.
    """
    return f"  to install it: pip install {shlex.quote(str(wheel))}"
