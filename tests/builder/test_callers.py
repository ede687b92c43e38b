"""Calls inside a library that do not go through the dispatcher, compared with a disassembler."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from graft.base.callers import direct_callers, kept_calls, python_overrides
from graft.inputs.entries import read_entries
from helpers import beside, write

CASES = beside(__file__)

SOURCE = CASES["source"]
# The end of `mov %ebp, %eax` and what follows have the bytes of a call.
APART = CASES["apart"]
ENTRIES = CASES["entries"]
THEIRS = CASES["theirs"]
TRACE = "_ZN2at6native9trace_cpuEi"


def compiled(folder: Path, *flags: str, compiler: str = "g++", source: str = SOURCE) -> Path:
    (folder / "library.cpp").write_text(source)
    path = folder / "library.so"
    command = [compiler, "-O2", "-fPIC", "-shared", "-Wl,--build-id=sha1", *flags, "-o", str(path)]
    subprocess.run([*command, str(folder / "library.cpp")], check=True)
    return path


def disassembled(path: Path, objdump: str, called: str) -> set[str]:
    """Return the functions whose instructions name another."""
    text = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    bodies = re.findall(r"^[0-9a-f]+ <([^>@]+)>:\n((?:.+\n)+)", text, re.M)
    return {name for name, body in bodies if re.search(rf"\b(?:call|jmp|bl|b)\s+[0-9a-f]+ <{called}(?:@plt)?>", body)}


@pytest.mark.parametrize("flags", [[], ["-Wl,-Bsymbolic"], ["-fcf-protection", "-Wl,-z,ibtplt"]])
@pytest.mark.parametrize("prefix", ["", "aarch64-linux-gnu-"])
def test_callers_are_those_a_disassembler_shows(tmp_path: Path, prefix: str, flags: list[str]) -> None:
    if not shutil.which(f"{prefix}g++"):
        pytest.skip(f"there is no {prefix}g++")
    if prefix and "-fcf-protection" in flags:
        flags = ["-mbranch-protection=none"]
    path = compiled(tmp_path, *flags, compiler=f"{prefix}g++")
    expected = disassembled(path, f"{prefix}objdump", TRACE)
    assert len(expected) == 4
    assert {*direct_callers(path, ["_ZN2at6native9trace_cpuE"])[TRACE]} == expected


def test_calls_of_the_dispatcher_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "native_functions.yaml").write_text(ENTRIES)
    entries = read_entries(tmp_path / "native_functions.yaml")
    source = SOURCE + (APART if platform.machine() == "x86_64" else "")
    path, note = compiled(tmp_path, "-Wl,-Bsymbolic", source=source), tmp_path / "note.json"
    expected = {
        "at::native::trace_cpu": ["at::native::inside", "at::native::last"],
        "at::cpu::renorm_": ["at::runtime"],
    }
    for _ in range(2):  # the second time from the note
        assert kept_calls(path, zip(entries, THEIRS, strict=True), note) == expected
    assert kept_calls(path, [], note) == {}


def test_overrides_in_python_are_named(tmp_path: Path) -> None:
    """By the operator's name and the dispatch key, which may be in different statements."""
    override = 'KEYS = ("CPU", "XPU")\nfor key in KEYS:\n    register_op_override("aten", "NAME", key, cond, impl)\n'
    files = {
        "torch/_native/ops/a.py": override.replace("NAME", "renorm_"),
        "torch/_native/ops/b/c.py": override.replace("NAME", "trace").replace("CPU", "CUDA"),
        "torch/_native/ops/d.py": override.replace("NAME", "trace_backward"),
        "torch/_native/other.py": override.replace("NAME", "trace"),
    }
    write(tmp_path, {"native_functions.yaml": ENTRIES, **files})
    entries = read_entries(tmp_path / "native_functions.yaml")
    assert python_overrides(tmp_path, entries) == ["renorm.out (CPU) in torch/_native/ops/a.py"]
