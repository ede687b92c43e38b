"""Native folders named after their content, for texts of ``load_inline`` and for pickled sources."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import UsageError
from ..core.files import delete, lay_out_files, note_use
from ..core.layout import HOME

_FOLDER = HOME / "inline"
# The number of folders kept.
_KEPT = 256
_NAME = re.compile(r"(?!\.)[\w.-]+")


def require_name(name: object) -> str:
    """Return ``name`` if a load can have it: files are named after it.

    Raises:
        UsageError: it is not a valid name.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise UsageError(f"name={name!r}: a name has letters, digits, `_`, `-` and `.`, and does not begin with a `.`")


def folder_with(name: str, files: Mapping[str, bytes]) -> Path:
    """Return a folder that contains exactly ``files``, by path. No process changes it later."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{len(files[path])}\0".encode() + files[path])
    folder = _FOLDER / f"{name}-{digest.hexdigest()[:12]}"
    if folder.is_dir():
        note_use(folder)
        return folder
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=_FOLDER, ignore_cleanup_errors=True) as partial:
        written = Path(partial) / "native"
        lay_out_files(written, files)
        with suppress(OSError):  # another process was first
            written.rename(folder)
    with suppress(OSError):  # another process deletes, too
        _delete_old()
    return folder


def _delete_old() -> None:
    there = sorted((path for path in _FOLDER.iterdir() if path.name[0] != "."), key=lambda path: path.stat().st_mtime)
    for old in there[:-_KEPT]:
        delete(old)
