"""Which Python a version, a name or a path means. The Pythons are shell scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.core.pythons import find_pythons
from helpers import Patch, program

# What answers like a Python of this version, and a shim or a program that does not run.
BROKEN = "exit 127"


def fake_python(version: str, flags: str = "") -> str:
    return f"echo {' '.join(version.split('.'))} cpython flags{flags}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A home without Pythons, and a PATH of two folders in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{tmp_path / 'other'}")
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    return tmp_path


def install(home: Path, programs: Mapping[str, str]) -> None:
    for name, text in programs.items():
        program(home / name, text)


PYENV = ".pyenv/versions/{}/bin/python3.12"


@pytest.mark.parametrize(
    ("programs", "words", "found"),
    [
        # pyenv has shims for versions that are not installed; the newest one counts, or the one that is named.
        ({"bin/python3.12": BROKEN, **{PYENV.format(f"3.12.{n}"): f"3.12.{n}" for n in (9, 10)}}, "3.12", "3.12.10"),
        ({"bin/python3.12": BROKEN, **{PYENV.format(f"3.12.{n}"): f"3.12.{n}" for n in (9, 10)}}, "3.12.9", "3.12.9"),
        # The Python on PATH comes first, and need not be in its first folder.
        ({"bin/python3.12": BROKEN, PYENV.format("3.12.9"): "3.12.9", "other/python3.12": "3.12.0"}, "3.12", "other"),
        *(
            ({f"{place}/python3.12": "3.12.1"}, "3.12", place)
            for place in (
                ".local/share/uv/python/cpython-3.12.1-linux/bin",
                "miniforge3/bin",
                "miniconda3/envs/mine/bin",
            )
        ),
    ],
)
def test_version_is_found(home: Path, programs: dict[str, str], words: str, found: str) -> None:
    install(home, {name: text if text == BROKEN else fake_python(text) for name, text in programs.items()})
    (python,) = find_pythons([words])
    assert f"/{found}/" in str(python.path)
    assert (python.release, python.tag, python.interpreter) == ("3.12", "cp312-cp312", "cp312")


def test_python_may_be_a_name_or_a_path_and_counts_once(home: Path) -> None:
    versions = {"bin/python3.12": ("3.12.1", ""), "a b/python": ("3.13.0", ""), "bin/python3.13t": ("3.13.0", "t")}
    install(home, {name: fake_python(*version) for name, version in versions.items()})
    found = find_pythons(["python3.12", "3.12", str(home / "a b/python"), "python3.13t"])
    assert [python.path for python in found] == [home / name for name in versions]
    assert [python.release for python in found] == ["3.12", "3.13", "3.13t"]
    assert found[2].tag == "cp313-cp313t"


def test_all_pythons_that_are_missing_are_named(home: Path) -> None:
    install(home, {"bin/python3.12": fake_python("3.12.1"), "bin/python3.10": BROKEN})
    with pytest.raises(UsageError, match=r"does not run: 3\.10, python9, /no/python, 3\.12\.7\n"):
        find_pythons(["3.12", "3.10", "python9", "/no/python", "3.12.7"])
