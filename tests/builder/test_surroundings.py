"""What a build does not depend on: environment variables. And what it depends on: the programs behind the compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ninja
import pytest
from graft.core.errors import ToolchainError
from graft.core.layout import REPOSITORY
from graft.core.process import run
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain

PIN = load_pin(REPOSITORY / "patches/2.13.0")

SHOW = [sys.executable, "-c", "import os; print(*sorted(os.environ), sep='\\n')"]

DROPPED = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *(
        "LD_RUN_PATH",
        "SOURCE_DATE_EPOCH",
        "NVCC_APPEND_FLAGS",
        "NVCC_PREPEND_FLAGS",
        "PYTHONOPTIMIZE",
        "PYTHONWARNINGS",
    ),
)
KEPT = ("PATH", "HOME", "CUDA_HOME", "CCACHE_DIR", "PYTHONPATH", "PYTHONUTF8")


def test_commands_do_not_see_what_changes_compilers_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*DROPPED, *KEPT):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    seen = set(run(SHOW, env={"GIVEN": "1"}).stdout.split())
    assert seen.isdisjoint(DROPPED) and seen >= {*KEPT, "GIVEN"}


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


def test_linker_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="`ld`, which the C"):
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
    with pytest.raises(ToolchainError, match=message):
        find_toolchain(PIN, str(tmp_path / "cxx"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_compilers_end_with_the_builder(tmp_path: Path, number: signal.Signals) -> None:
    """Otherwise they would write their objects into the next build."""
    rule = "rule slow\n  command = touch began; sleep 1; touch $out\nbuild object: slow\n"
    (tmp_path / "build.ninja").write_text(rule)
    command = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(tmp_path)]
    body = f"from graft.core.process import follow; follow({command!r}, print, env={{}})"
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.DEVNULL) as process:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        process.send_signal(number)
    time.sleep(1.5)
    assert not (tmp_path / "object").exists()
