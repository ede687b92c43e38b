"""``.ci/run`` ends with the exit code of what it runs. ``make`` is a stand-in here that fails where a test says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY

_MAKE = """#!/bin/sh
echo "make $*"
case "$*" in *"$FAILS"*) exit 2 ;; *" OUT="*) mkdir -p "${*##*OUT=}" ;; esac
"""


def _run(folder: Path, fails: str) -> subprocess.CompletedProcess[str]:
    for name in (".ci/run", "tests/readme_folder.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / ".ci/run", folder / ".ci/run")
    (folder / "tests/readme_folder.py").touch()
    (folder / "tests/other_pythons.py").write_text("print('/of/this', '/of/that', sep='\\n')")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("make", _MAKE), ("apt-get", "#!/bin/sh\necho lists\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "FAILS": fails}
    command = [folder / ".ci/run"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_passes(tmp_path):
    ran = _run(tmp_path, "no such command")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "make surfaces" in ran.stdout
    assert all(f"make patch-and-build PYTHON={name} NATIVE=" in ran.stdout for name in ("/of/this", "/of/that"))


@pytest.mark.parametrize("fails", ["lint", "check-source", "test", "surfaces", "deliveries", "soft_clip", "/of/that"])
def test_fails_with_what_it_runs(tmp_path, fails):
    assert _run(tmp_path, fails).returncode == 2
