"""What a machine lacks is named at once, before anything is created; the builder's packages are pinned."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from graft.core import environments
from graft.core.errors import MissingError
from graft.core.layout import PACKAGES, REPOSITORY
from graft.inputs.pyproject import read_toml
from helpers import Patch
from packaging.requirements import Requirement


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

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": "", "CXX": "g++"}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    done = ran("scripts/environment.py", "graft", "build")
    assert done.returncode == MissingError.exit_code
    assert done.stderr.startswith("error: not found: g++, git, make\n  next: `apt-get install g++ git make` ")
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]
    enter = "import sys; sys.path[0] = 'scripts'; from graft.core import environments; "
    enter += "environments.held = lambda *_: sys.exit('went on'); environments.enter('graft', sys.argv[1:])"
    for verb in ("undevelop", "build"):
        assert ran("-c", enter, verb, "--help").stderr.strip() == "went on"


ENTRIES = re.split(r"\n(?=\S)", (PACKAGES / "requirements.txt").read_text(encoding="utf-8").strip())[1:]


def test_every_package_is_pinned_with_hashes() -> None:
    assert ENTRIES
    for entry in ENTRIES:
        assert re.match(r"[\w.-]+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_what_is_wanted_is_pinned() -> None:
    settings = read_toml(REPOSITORY / "pyproject.toml")
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["checkout"]]
    pinned = {entry.partition("==")[0] for entry in ENTRIES}
    assert pinned | {"pip"} >= {Requirement(each).name for each in wanted}
