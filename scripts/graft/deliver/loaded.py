"""Write the files that a running process loads. Each content has its own folder, since open files must not change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import RefusedError
from ..core.files import delete, lay_out_files, note_use
from ..core.system_errors import remedy

# The number of folders kept for each native folder. A process that loaded one may start others that load it, too.
_KEPT = 8


def write_loaded(out: Path, files: Mapping[str, bytes]) -> Path:
    """Write ``files`` into a folder below ``out`` that is named after their content. Return it."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    folder = out / digest.hexdigest()[:16]
    try:
        if folder.is_dir():
            note_use(folder)
            return folder
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", dir=out, ignore_cleanup_errors=True) as partial:
            lay_out_files(Path(partial), files)
            Path(partial).chmod(0o755)
            Path(partial).rename(folder)
        others = sorted(
            (path for path in out.iterdir() if path.name[0] != "."), key=lambda path: path.stat().st_mtime_ns
        )
        for old in others[:-_KEPT]:
            delete(old)
    except OSError as error:
        raise RefusedError(f"{out}: {error.strerror or error}", todo=remedy(error, out)) from error
    return folder
