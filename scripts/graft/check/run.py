"""Run the checks in a process that can import the base's torchgen."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..base.base import run_with_torchgen
from ..core.console import say
from ..core.errors import OperatorError
from ..core.files import write_atomically
from ..inputs.native import DOCS, PYTHON, load_native
from ..inputs.snapshot import Snapshot, hash_of_builder
from . import Findings
from .files import check_files, check_python


def check_native(snapshot: Snapshot, base_tree: Path, note: Path | None = None) -> None:
    """Check the native folders of ``snapshot`` against the base, and print warnings.

    Args:
        snapshot: the inputs of the build.
        base_tree: the unpacked base.
        note: a file that records a successful check, so that only texts that need no torchgen are checked again; None
            to check everything.

    Raises:
        OperatorError: lists every error as ``file:line: what is wrong; what to write instead``.
    """
    stamp = _stamp(snapshot)
    if note and note.is_file() and note.read_text(encoding="utf-8") == stamp:
        findings = Findings()
        folders = [load_native(native) for native in snapshot.natives]
        check_files(folders, findings)
        check_python(folders, base_tree, findings)
        output, is_wrong = "\n".join(findings.lines()), bool(findings.errors)
    else:
        done = run_with_torchgen(base_tree, "graft.check", base_tree, *snapshot.natives)
        output, is_wrong = done.stdout.strip(), done.returncode != 0
    if is_wrong:
        raise OperatorError(snapshot.translate(output))
    if output:
        say(snapshot.translate(output))
    if note:
        write_atomically(note, stamp)


def _stamp(snapshot: Snapshot) -> str:
    """Return a hash of what is checked; for docstrings and Python files, of their names only."""
    digest = hashlib.sha256(hash_of_builder().encode())
    for name, content in sorted({**snapshot.files, **dict.fromkeys(snapshot.unread, b"")}.items()):
        is_text = name.split("/")[2:3] in ([DOCS.name], [PYTHON.name])
        digest.update(f"{name}\0{'' if is_text else len(content)}\0".encode())
        digest.update(b"" if is_text else content)
    return digest.hexdigest()
