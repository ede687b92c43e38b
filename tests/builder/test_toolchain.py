"""The compiler and the programs behind it, and what a machine lacks: named before anything is created."""

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
from graft.core.architecture import Architecture
from graft.core.errors import MissingError
from graft.core.layout import (
    DEVELOP,
    LOADED,
    LOADED_DEBUG,
    LOADED_SANITIZED,
    PACKAGES,
    REPOSITORY,
    SANITIZED,
    Layout,
    TorchVersion,
)
from graft.inputs.pin import load_pin
from graft.inputs.pyproject import read_toml
from graft.inputs.toolchain import LOADING, Toolchain, find_toolchain
from helpers import Patch, program, refused
from packaging.requirements import Requirement

PIN = load_pin(REPOSITORY / "patches/2.13.0")


def compiler(folder: Path, linker: Path) -> str:
    """A compiler that uses another linker."""
    return str(program(folder / "cxx", f'case "$*" in -print-prog-name=ld) echo {linker};; *) exec g++ "$@";; esac'))


def test_linker_is_an_input(tmp_path: Path) -> None:
    for version in ("1", "2"):
        linker = program(tmp_path / "a linker", f"echo linker of version {version}")
        assert f"linker of version {version}" in find_toolchain(PIN, compiler(tmp_path, linker)).description
    assert "collect2" not in find_toolchain(PIN).description


def test_processor_is_an_input_of_builds_for_edits(monkeypatch: Patch) -> None:
    """They have kernels for its capability only, and machines may share a cache folder."""
    found = find_toolchain(PIN)
    for kind in (DEVELOP, LOADED, LOADED_DEBUG, LOADED_SANITIZED):
        kinds = set()
        for capability in ("DEFAULT", found.architecture.edited):
            monkeypatch.setattr(Architecture, "capability_for_edits", lambda _, name=capability: name)
            kinds.add(found.of_kind(kind).kind)
        assert len(kinds) == 2, kind


def test_loads_for_a_debugger_are_loads_with_debug_information() -> None:
    loaded, debugged = (find_toolchain(PIN).of_kind(kind) for kind in (LOADED, LOADED_DEBUG))
    assert (loaded.loading, loaded.has_debug_info) == (LOADING, False)
    assert (debugged.loading, debugged.has_debug_info) == (LOADING, True)


def test_linker_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="`ld`, which the C"):
        find_toolchain(PIN, compiler(tmp_path, program(tmp_path / "ld", "echo fork: no memory; exit 1")))


@pytest.mark.parametrize(
    ("version", "about", "message"),
    [
        ("9.4.0", "g++ 9.4.0", r"is g\+\+ 9\.4\.0, which is too old"),
        ("17.0.0", "clang version 17", r"is not g\+\+ but clang"),
        ("", "", "cxx` does not run"),
    ],
)
def test_compiler_that_will_not_do_is_refused(tmp_path: Path, version: str, about: str, message: str) -> None:
    if version:
        program(tmp_path / "cxx", f'case "$1" in -dump*) echo {version};; *) echo "{about}";; esac')
    with pytest.raises(MissingError, match=message):
        find_toolchain(PIN, str(tmp_path / "cxx"))


def test_sanitized_build_has_folders_of_its_own() -> None:
    layout = Layout(TorchVersion("2.13.0"), (Path("/operators"),), Path("/out"))
    sanitized = layout.sanitized()
    assert sanitized.base == layout.base
    for name in ("out", "work", "sources", "generated", "objects"):
        ours, theirs = getattr(sanitized, name), getattr(layout, name)
        assert ours != theirs and theirs not in ours.parents and ours not in theirs.parents
    # Compilers write relative paths into objects.
    assert len(sanitized.work.parts) == len(layout.work.parts)
    assert sanitized.out != Layout(TorchVersion("2.13.0"), (Path("/others"),), Path("/out")).sanitized().out


def test_sanitizers_have_the_last_word_on_optimization() -> None:
    toolchain = Toolchain("g++", "g++ 12", "c++20")
    sanitized = toolchain.of_kind(SANITIZED)
    assert sanitized.kind != toolchain.kind  # and so the wheel's version differs
    for capability in toolchain.capabilities:
        flags = [*sanitized.flags, *sanitized.capability_flags(capability)]
        assert [flag for flag in flags if flag.startswith("-O")][-1] == "-O1"
        assert "-fsanitize=address,undefined" in flags
        assert not any("sanitize" in flag for flag in (*toolchain.flags, *toolchain.capability_flags(capability)))


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
    error = refused(MissingError, environments.require_all)
    python = f"python3.{sys.version_info.minor}"
    what = "g++, git, make, /usr/include/python3/Python.h, Python's module ensurepip"
    assert error.what == f"not found: {what}"
    assert error.todo == (
        f"`apt-get install g++ git make {python}-dev {python}-venv` (Debian, Ubuntu) or "
        "`dnf install gcc-c++ git make python3-devel python3` (Fedora)"
    )


@pytest.mark.usefixtures("bare")
def test_what_no_package_has_is_told_in_words(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/opt/python")
    monkeypatch.setenv("CXX", "my-g++")
    error = refused(MissingError, environments.require_all)
    assert error.what.startswith("not found: my-g++, git, ")
    assert error.todo.startswith("`apt-get install git make` (Debian, Ubuntu) or `dnf install git make` (Fedora)")
    assert "; set CXX to a g++; set PYTHON to another Python" in error.todo


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
