"""The builder's side of the checks: run them in a process that can import the base's torchgen."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..base.torchgen import run_with_torchgen
from ..common.console import say
from ..common.errors import OperatorError
from ..common.files import write_atomically
from ..inputs.native import DOCS, PYTHON
from ..inputs.snapshot import Snapshot, hash_of_builder
from .files import check_files
from .finding import Findings
from .python import check_python


def check_native(snapshot: Snapshot, base_tree: Path, note: Path | None = None) -> None:
    """Check the native folders of ``snapshot`` against the base; print warnings.

    Args:
        snapshot: of the folders.
        base_tree: what they are built upon.
        note: a file that remembers what was found to be right, so that it is not checked again; None checks all.

    Raises:
        OperatorError: naming every mistake, each as ``file:line: what is wrong; what to write instead``.
    """
    stamp = _stamp(snapshot)
    if note and note.is_file() and note.read_text(encoding="utf-8") == stamp:
        _check_texts(snapshot, base_tree)
        return
    done = run_with_torchgen(base_tree, "scripts.check", "--base", base_tree, "--native", *snapshot.natives)
    output = snapshot.translate(done.stdout.strip())
    if done.returncode != 0:
        raise OperatorError(output)
    if output:
        say(output)
    if note:
        write_atomically(note, stamp)


def _check_texts(snapshot: Snapshot, base_tree: Path) -> None:
    """Check docstrings and Python files, which nothing else depends on. That needs no torchgen."""
    findings = Findings()
    check_files(snapshot.natives, findings)
    check_python(snapshot.natives, base_tree, findings)
    output = snapshot.translate("\n".join(findings.lines()))
    if findings.errors:
        raise OperatorError(output)
    if output:
        say(output)


def _stamp(snapshot: Snapshot) -> str:
    """A hash of what is checked: of docstrings and Python files only the names."""
    digest = hashlib.sha256(hash_of_builder(("check", "inputs")).encode())
    for name, content in sorted({**snapshot.files, **dict.fromkeys(snapshot.unread, b"")}.items()):
        is_text = name.split("/")[2:3] in ([DOCS.name], [PYTHON.name])
        digest.update(f"{name}\0{'' if is_text else len(content)}\0".encode())
        digest.update(b"" if is_text else content)
    return digest.hexdigest()
