"""The compiler and the programs behind it: those that will not do are refused, and all are inputs of a build."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.architecture import Architecture
from graft.core.errors import MissingError
from graft.core.layout import DEVELOP, LOADED, LOADED_SANITIZED, REPOSITORY, SANITIZED, Layout, TorchVersion
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import Toolchain, find_toolchain
from helpers import Patch, program

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
