"""``.ci/run`` ends with the exit code of what it runs. ``make`` is a stand-in here that fails where a test says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY
from helpers import program, write

from tests.other_pythons import one_of

_PROGRAMS = {
    "make": """echo "make $*"
echo "in $XDG_CACHE_HOME${GRAFT_HOME:-}"
case "$*" in *"$FAILS"*) exit 2 ;; esac""",
    "apt-get": "echo lists",
    "git": "echo 0a1b2c3d",
}


def _run(folder: Path, fails: str, **variables: str) -> subprocess.CompletedProcess[str]:
    pythons = "import sys\nprint('/of' + '/'.join(sys.argv[1:]))"
    write(folder, {".ci/run": "", "tests/readme_folder.py": "", "tests/other_pythons.py": pythons})
    shutil.copy(REPOSITORY / ".ci/run", folder / ".ci/run")
    for name, body in _PROGRAMS.items():
        program(folder / "bin" / name, body)
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "FAILS": fails, "GRAFT_HOME": "/user"}
    environment.pop("GRAFT_CI_CACHE", None)
    command = [folder / ".ci/run"]
    return subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, timeout=60, check=False
    )


def test_passes(tmp_path):
    ran = _run(tmp_path, "no such command", XDG_CACHE_HOME="/cache")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "make patch-and-build PYTHON=/of--one/0a1b2c3d NATIVE=" in ran.stdout
    assert {line for line in ran.stdout.splitlines() if line.startswith("in ")} == {"in /cache/graft-ci"}


def test_a_run_can_have_a_cache_of_its_own(tmp_path):
    assert "\nin /empty\n" in _run(tmp_path, "no such command", GRAFT_CI_CACHE="/empty").stdout


@pytest.mark.parametrize("fails", ["lint", "check-source", "test", "deliveries", "patch-and-build"])
def test_fails_with_what_it_runs(tmp_path, fails):
    ran = _run(tmp_path, fails)
    assert ran.returncode == 2
    if fails != "lint":  # everything else runs all the same, and its output is shown
        assert {"make check-source ARGS=--syntax", "make test"} < {*ran.stdout.splitlines()}
        assert "deliveries loaded" in ran.stdout


def test_a_commit_chooses_one_python():
    names = ["3.10", "3.12", "3.13"]
    assert {*map(str, (one_of(names, f"{number:040x}") for number in (0, 1 << 128, 2 << 128)))} == {
        str([name]) for name in names
    }
    assert one_of([], "0a1b2c3d") == []
