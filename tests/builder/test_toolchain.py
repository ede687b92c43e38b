"""The compiler and the programs behind it: those that will not do are refused, and all are inputs of a build."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.architecture import Architecture
from graft.core.errors import MissingError
from graft.core.layout import DEVELOP, LOADED, LOADED_SANITIZED, REPOSITORY
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain
from helpers import Patch

PIN = load_pin(REPOSITORY / "patches/2.13.0")


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def compiler(folder: Path, linker: Path) -> str:
    """A compiler that uses another linker."""
    body = f'case "$*" in -print-prog-name=ld) echo {linker};; *) exec g++ "$@";; esac'
    return str(program(folder / "cxx", body))


def test_linker_is_an_input(tmp_path: Path) -> None:
    found = []
    for version in ("1", "2"):
        linker = program(tmp_path / "a linker", f"echo linker of version {version}")
        found.append(find_toolchain(PIN, compiler(tmp_path, linker)).description)
    assert [f"linker of version {version}" in text for version, text in zip("12", found, strict=True)] == [True, True]
    assert "collect2" not in find_toolchain(PIN).description


def test_processor_is_an_input_of_builds_for_edits(monkeypatch: Patch) -> None:
    """They have kernels for its capability only, and machines may share a cache folder."""
    found = find_toolchain(PIN)
    for kind in (DEVELOP, LOADED, LOADED_SANITIZED):
        kinds = set()
        for capability in ("DEFAULT", found.architecture.edited):
            monkeypatch.setattr(Architecture, "capability_for_edits", lambda _, name=capability: name)
            kinds.add(found.of_kind(kind).kind)
        assert len(kinds) == 2, kind


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
