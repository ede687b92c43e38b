"""One hash over all that a build's result depends on."""

from __future__ import annotations

import hashlib
import json
import platform
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..common.files import files_below, write_atomically
from ..common.layout import REPOSITORY, Layout
from .native import AUTOCAST, DERIVATIVES, FUNCTIONS, NativeFolder
from .patches import pin_files
from .toolchain import Toolchain


def hash_files(folder: Path, names: Iterable[Path]) -> str:
    """A hash of the names and contents of files, wherever ``folder`` is."""
    digest = hashlib.sha256()
    for name in names:
        content = (folder / name).read_bytes()
        digest.update(f"{name.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def builder_files() -> list[Path]:
    """The builder's own files, relative to the repository."""
    scripts = REPOSITORY / "scripts"
    names = [name for name in files_below(scripts) if "__pycache__" not in name.parts]
    return [Path("scripts") / name for name in names]


def stamp_of(layout: Layout, native: NativeFolder, toolchain: Toolchain) -> str:
    """The stamp of a build: the same one means the same wheel."""
    parts = [
        hash_files(layout.patches, pin_files(layout.patches)),
        hash_files(native.path, native.files),
        hash_files(REPOSITORY, builder_files()),
        toolchain.description,
        platform.python_version(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def codegen_stamp(layout: Layout, native: NativeFolder) -> str:
    """The stamp of what is generated, which does not depend on kernels."""
    yaml = [name for name in (FUNCTIONS, DERIVATIVES, AUTOCAST) if name in native.files]
    parts = [
        hash_files(layout.patches, pin_files(layout.patches)),
        hash_files(native.path, [*yaml, *native.docs]),
        hash_files(REPOSITORY, builder_files()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Built:
    """What the last build of a native folder made."""

    stamp: str
    wheel: str
    size: int
    time: int

    @classmethod
    def of(cls, stamp: str, wheel: Path) -> Built:
        """Note the wheel that ``stamp`` gave."""
        status = wheel.stat()
        return cls(stamp, str(wheel), status.st_size, status.st_mtime_ns)

    def is_there(self) -> bool:
        """Whether the wheel is still there, as it was written."""
        path = Path(self.wheel)
        return path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (self.size, self.time)


# The kinds of builds.
GRAFT, SOURCE = "graft", "source"


def load_built(layout: Layout, build: str = GRAFT) -> Built | None:
    """What the last build of this kind, by this Python, made of this native folder where its wheels go now."""
    try:
        return Built(**json.loads(_note(layout, build).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def save_built(layout: Layout, built: Built, build: str = GRAFT) -> None:
    """Remember ``built``."""
    write_atomically(_note(layout, build), json.dumps(asdict(built), indent=1) + "\n")


def _note(layout: Layout, build: str) -> Path:
    folder = hashlib.sha256(str(layout.out).encode()).hexdigest()[:8]
    # Of each Python there may be a wheel in the same folder.
    return layout.work / f"built-{build}-{sysconfig.get_config_var('SOABI')}-{folder}.json"
