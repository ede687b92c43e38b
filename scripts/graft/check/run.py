"""Record which native folders had no errors, and check docstrings and Python files, which needs no torchgen."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..core.files import write_atomically
from ..inputs.native import DOCS, INCLUDE, OVERLAY, PYTHON
from ..inputs.snapshot import Snapshot, hash_of_builder
from . import Findings
from .folder import check_files, check_python

# The file in the work folder that says which inputs had no errors.
_NOTE = "checked"


def is_checked(snapshot: Snapshot, work: Path) -> bool:
    """Return whether an earlier build found no errors in these inputs. Docstrings and Python files do not count."""
    note = work / _NOTE
    return note.is_file() and note.read_text(encoding="utf-8") == _stamp(snapshot)


def note_checked(snapshot: Snapshot, work: Path) -> None:
    """Record that these inputs have no errors."""
    write_atomically(work / _NOTE, _stamp(snapshot))


def check_texts(snapshot: Snapshot, base_tree: Path) -> None:
    """Check the docstrings and Python files of the native folders. Print warnings, or raise all findings."""
    findings = Findings()
    check_files(snapshot.natives, findings)
    check_python(snapshot.natives, base_tree, findings)
    findings.settle()


def _stamp(snapshot: Snapshot) -> str:
    """Return a hash of the inputs that are checked; for docstrings and Python files, of their names only."""
    digest = hashlib.sha256(hash_of_builder().encode())
    unread = {f"{folder.path}/{name}": b"" for folder in snapshot.read.folders for name in folder.unread}
    for name, content in sorted({**snapshot.files, **unread}.items()):
        is_laid_over = name.startswith(f"{OVERLAY}/") and not name.split("/", 2)[2].startswith(INCLUDE)
        is_text = is_laid_over or name.split("/")[2:3] in ([DOCS.name], [PYTHON.name])
        digest.update(f"{name}\0{'' if is_text else len(content)}\0".encode())
        digest.update(b"" if is_text else content)
    digest.update(repr([folder.settings.kept for folder in snapshot.read.folders]).encode())
    return digest.hexdigest()
