"""What a machine lacks is named at once, with the packages to install, before anything is created or downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from graft.core import environments
from graft.core.errors import MissingError
from graft.core.layout import REPOSITORY
from helpers import Patch


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: Patch) -> None:
    """A machine without programs and headers, whose Python is a package of the system."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/usr/include/python3")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(environments.importlib.util, "find_spec", lambda _: None)


@pytest.mark.usefixtures("bare")
def test_all_that_is_missing_is_named_with_its_packages() -> None:
    with pytest.raises(MissingError) as caught:
        environments.require_all()
    python = f"python3.{sys.version_info.minor}"
    what = "g++, git, make, /usr/include/python3/Python.h, Python's module ensurepip"
    assert caught.value.what == f"not found: {what}"
    assert caught.value.todo == (
        f"`apt-get install g++ git make {python}-dev {python}-venv` (Debian, Ubuntu) or "
        "`dnf install gcc-c++ git make python3-devel python3` (Fedora)"
    )


@pytest.mark.usefixtures("bare")
def test_what_no_package_has_is_told_in_words(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/opt/python")
    monkeypatch.setenv("CXX", "my-g++")
    with pytest.raises(MissingError) as caught:
        environments.require_all()
    assert caught.value.what.startswith("not found: my-g++, git, ")
    assert caught.value.todo.startswith(
        "`apt-get install git make` (Debian, Ubuntu) or `dnf install git make` (Fedora)"
    )
    assert "; set CXX to a g++; set PYTHON to another Python" in caught.value.todo


def test_nothing_is_created_before(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "scripts/environment.py", "graft", "build"]
    env = {**os.environ, "PATH": "", "CXX": "g++"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == MissingError.exit_code
    assert done.stderr.startswith("error: not found: g++, git, make\n  next: `apt-get install g++ git make` ")
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]
    for words in (["undevelop", "--help"], ["build", "--help"]):
        command = [
            sys.executable,
            "-c",
            f"import sys; sys.path[0] = 'scripts'; sys.argv = {['-', *words]!r}; from graft.core import environments;",
        ]
        command[-1] += "environments.held = lambda *_: sys.exit('went on'); environments.enter('graft', sys.argv[1:])"
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.stderr.strip() == "went on"
