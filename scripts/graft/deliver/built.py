"""Notes of builds: the result of each, and its inputs. A build with the same inputs has nothing to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..compile.manifest import Outside
from ..core.files import files_below, note_use, write_atomically
from ..core.layout import HOME, Layout, TorchVersion
from ..inputs.snapshot import Snapshot
from ..options import GRAFT


def fingerprint_of(path: Path) -> str:
    """Return an identifier of a file, or of the files below a folder, by size and time; empty if there is none."""
    files = [path / name for name in files_below(path)] if path.is_dir() else [path] if path.is_file() else []
    statuses = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
    return hashlib.sha256(json.dumps(statuses).encode()).hexdigest() if statuses else ""


@dataclass(frozen=True)
class Built:
    """The note of a build.

    Args:
        stamp: the stamp of its snapshot.
        path: the wheel or folder that it delivered.
        fingerprint: identifies the content of ``path``.
        cuda_note: the note of the CUDA settings; empty if CUDA does not affect the result.
        outside: the files outside of the build that compilers read.
    """

    stamp: str
    path: Path
    fingerprint: str
    cuda_note: str = ""
    outside: Outside = field(default_factory=lambda: Outside({}))

    def is_there(self, identify: Callable[[Path], str] = fingerprint_of) -> bool:
        """Return whether the delivered file or folder is still there, unchanged."""
        return self.fingerprint == identify(self.path)


def load_built(layout: Layout, kind: str = GRAFT) -> Built | None:
    """Return the note of the last build of this kind of these native folders into this output folder, or None."""
    return _read(_note(layout, kind))


def builds_of(layout: Layout, kind: str) -> Iterator[Built]:
    """Yield the notes of all builds whose kinds begin with ``kind``, the last first."""
    for note in _notes(layout, kind):
        if built := _read(note):
            yield built


def forget_gone(layout: Layout, kind: str) -> None:
    """Delete the notes of builds whose kinds begin with ``kind`` and whose results no longer exist."""
    for note in _notes(layout, kind):
        built = _read(note)
        if built is None or not built.path.exists():
            note.unlink(missing_ok=True)


def save_built(layout: Layout, built: Built, kind: str = GRAFT) -> None:
    """Write the note of a build. If the previous build delivered a wheel of another name, delete that wheel."""
    before = load_built(layout, kind)
    fields = {**asdict(built), "path": str(built.path)}
    write_atomically(_note(layout, kind), json.dumps(fields, indent=1) + "\n")
    if before and before.path != built.path and not before.path.is_dir():
        before.path.unlink(missing_ok=True)


def unchanged(
    layout: Layout, snapshot: Snapshot, kind: str = GRAFT, identify: Callable[[Path], str] = fingerprint_of
) -> Built | None:
    """Return the note of the last build if its inputs are unchanged and its result is still there; else None."""
    built = load_built(layout, kind)
    if not (
        built
        and built.stamp == snapshot.stamp
        and built.cuda_note in ("", layout.cuda.note)
        and built.is_there(identify)
        and built.outside.is_as_read(layout.work)
    ):
        return None
    note_use(_note(layout, kind))  # makes it the last build
    return built


def last_build(natives: tuple[Path, ...], build: str = GRAFT) -> tuple[TorchVersion, Built] | None:
    """Return the pin and the note of the last build of this kind of these native folders, for this Python."""
    of_any_pin = Layout(TorchVersion("*"), natives, Path())
    notes = of_any_pin.work.relative_to(HOME) / f"built-{build}-*.json"
    for note in sorted(HOME.glob(str(notes)), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        if built := _read(note):
            return TorchVersion(note.parents[2].name), built
    return None


def _notes(layout: Layout, kind: str) -> list[Path]:
    """Return the notes of builds whose kinds begin with ``kind``, the last first."""
    pattern = _note(layout, f"{kind}*").name
    return sorted(layout.work.glob(pattern), key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _note(layout: Layout, kind: str) -> Path:
    folder = hashlib.sha256(str(layout.out).encode()).hexdigest()[:8]
    return layout.work / f"built-{kind}-{folder}.json"


def _read(note: Path) -> Built | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        fields = json.loads(note.read_text(encoding="utf-8"))
        return Built(**{**fields, "path": Path(fields["path"]), "outside": Outside(**fields["outside"])})
    return None
