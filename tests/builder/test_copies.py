"""Copies of libraries that processes open again: those of processes that have ended are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from graft.session.copies import delete_those_of_the_dead
from helpers import Patch


def test_copies_of_processes_that_have_ended_are_deleted(tmp_path: Path, monkeypatch: Patch) -> None:
    """Also of one whose parent does not ask how it ended, as in a container."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as unasked:
        os.waitid(os.P_PID, unasked.pid, os.WEXITED | os.WNOWAIT)
        kept = ("graft-x", f"graft-{os.getpid()}-a1_", f"graft-locks-{os.getuid()}")
        for name in (*kept, f"graft-{unasked.pid}-a1_", "graft-99999999-a1_"):
            (tmp_path / name).mkdir()
        delete_those_of_the_dead()
    assert {path.name for path in tmp_path.iterdir()} == {*kept}
