"""Places that Graft uses outside of the store. The store records them, so that `graft clean --all` finds them."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from .files import write_if_changed
from .layout import store

# The kinds of places: folders of builds, site-packages with `make develop`, links for editors, and the user's own:
# wheels, editable installs, native folders.
BUILDS, DEVELOPED, LINKED, WHEEL, EDITABLE, NATIVE = "builds", "developed", "linked", "wheel", "editable", "native"


def note_place(kind: str, path: Path) -> None:
    """Record a place in the store."""
    with suppress(OSError):  # a store that cannot be written to
        write_if_changed(_note(kind, path), str(path))


def forget_place(kind: str, path: Path) -> None:
    """Delete the record of a place."""
    with suppress(OSError):
        _note(kind, path).unlink(missing_ok=True)


def places(kind: str) -> list[Path]:
    """Return the places of a kind that still exist, also as links to nowhere. Delete the records of the others."""
    found = [Path(note.read_text(encoding="utf-8")) for note in sorted((store() / "places").glob(f"{kind}-*"))]
    for path in found:
        if not os.path.lexists(path):
            forget_place(kind, path)
    return [path for path in found if os.path.lexists(path)]


def _note(kind: str, path: Path) -> Path:
    return store() / f"places/{kind}-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
