"""What the last build of a native folder made, so that the same input builds nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ..common.files import write_atomically
from ..common.layout import Layout


@dataclass(frozen=True)
class Built:
    """What the last build of a native folder made."""

    stamp: str
    wheel: str
    size: int
    time: int
    cuda: str = ""

    @classmethod
    def of(cls, stamp: str, wheel: Path, cuda: str = "") -> Built:
        """Note the wheel that ``stamp`` gave, and what was asked for about CUDA if that has a part in it."""
        status = wheel.stat()
        return cls(stamp, str(wheel), status.st_size, status.st_mtime_ns, cuda)

    def is_there(self) -> bool:
        """Whether the wheel is still there, as it was written."""
        path = Path(self.wheel)
        return path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (self.size, self.time)


# The kinds of builds.
GRAFT, SOURCE = "graft", "source"


def load_built(layout: Layout, build: str = GRAFT) -> Built | None:
    """What the last build of this kind made of this native folder where its wheels go now, if anything."""
    try:
        return Built(**json.loads(_note(layout, build).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def save_built(layout: Layout, built: Built, build: str = GRAFT) -> None:
    """Remember ``built``."""
    write_atomically(_note(layout, build), json.dumps(asdict(built), indent=1) + "\n")


def _note(layout: Layout, build: str) -> Path:
    folder = hashlib.sha256(str(layout.out).encode()).hexdigest()[:8]
    return layout.work / f"built-{build}-{folder}.json"
