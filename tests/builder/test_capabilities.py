"""Sources that are compiled for several CPU capabilities: develop tries those that it does not link."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from builds import GXX
from graft.compile.diagnostics import compiled_for, diagnostics
from graft.compile.messages import digest
from graft.compile.units import Units
from graft.core.architecture import ARCHITECTURES
from graft.inputs.native import load_natives
from graft.inputs.toolchain import Toolchain
from helpers import write

KERNEL = """#include <immintrin.h>
namespace at::native {
void dot(float* out, __m512bh a, __m512bh b) {
  _mm512_storeu_ps(out, _mm512_dpbf16_ps(_mm512_setzero_ps(), a, b));
}
}
REGISTER_DISPATCH(dot_stub, &dot)
"""
PLAIN = "REGISTER_DISPATCH(plain_stub, &plain)\n"


X86 = ARCHITECTURES["x86_64"]
WHEEL = Toolchain("g++", "", "c++20", machine="x86_64", capabilities=tuple(X86.capabilities))
EDITS = replace(WHEEL, capabilities=("AVX2",), is_for_edits=True)

FindUnits = Callable[..., Units]


@pytest.mark.parametrize(("toolchain", "tried"), [(EDITS, ["AVX512", "DEFAULT"]), (WHEEL, [])], ids=["edits", "wheel"])
def test_files_with_intrinsics_are_tried(units: FindUnits, toolchain: Toolchain, tried: list[str]) -> None:
    header = '#include "Dot.h"\n' + PLAIN
    files = {"cpu/Dot.h": KERNEL.partition("REGISTER")[0], "cpu/Plain.cpp": PLAIN, "cpu/Dot.cpp": header}
    found = units(files, toolchain=toolchain).tried
    assert sorted(str(unit.target) for unit in found) == [f"objects/native/cpu/Dot.cpp.{each}.tried" for each in tried]
    assert all({*X86.capabilities[each.target.stem.split(".")[-1]]} <= {*each.flags} for each in found)


@pytest.mark.parametrize("toolchain", [EDITS, WHEEL], ids=["edits", "wheel"])
def test_flags_of_settings_are_for_the_capability_that_lacks_them(
    tmp_path: Path, units: FindUnits, toolchain: Toolchain
) -> None:
    table = '[tool.graft]\nnative = "native"\n[tool.graft.cpu-flags]\n"native/cpu/Dot.cpp" = "-mavx512bf16"\n'
    write(tmp_path, {"pyproject.toml": f'{table}"native/cpu/More.cpp" = "-mavxvnni"\n'})
    write(tmp_path, {"native/cpu/Dot.cpp": KERNEL, "native/cpu/More.cpp": KERNEL})
    found = units(load_natives([tmp_path.resolve() / "native"]), toolchain=toolchain)
    named = {f"{unit.source.name} {unit.capability}": unit for unit in (*found.library, *found.tried)}
    assert len(named) == 2 * len(X86.capabilities)
    needing = {"Dot.cpp AVX512": ("avx512bf16",), **({} if toolchain is EDITS else {"More.cpp AVX2": ("avxvnni",)})}
    assert {name: unit.features for name, unit in named.items() if unit.features} == needing
    assert all(f"-m{each}" in unit.flags for unit in named.values() for each in unit.features)


@pytest.mark.parametrize(("is_for_edits", "sanitizers"), [(True, ()), (True, ("address",)), (False, ())])
def test_large_units_have_two_parts_where_edits_matter(
    units: FindUnits, is_for_edits: bool, sanitizers: tuple[str, ...]
) -> None:
    files = [f"large/{name}.cpp" for name in ("formulas", "operators", "library", "bindings")]
    toolchain = replace(GXX, is_for_edits=is_for_edits, sanitizers=sanitizers)
    found = units({"A.cpp": ""}, [*files, "small/library.cpp"], toolchain)
    is_quick = is_for_edits and not sanitizers
    parts = ["large/formulas", "large/operators"] if is_for_edits else ["large/library"]
    generated = [unit for unit in found.library if not unit.is_own]
    assert [f"{unit.source}" for unit in generated] == [
        f"generated/units/{each}.cpp" for each in (*parts, "small/library")
    ]
    assert all(("-O1" in unit.flags) is is_quick for unit in (*generated, *found.bindings))
    assert all(("graft_registered.h" in unit.flags) is is_quick for unit in generated)
    assert "graft_registered.h" not in found.bindings[0].flags


def test_message_names_the_flags_and_the_guard(tmp_path: Path) -> None:
    flags = ("-O0", "-mavx512f", "-mavx512bw", "-DCPU_CAPABILITY=AVX512")
    source = write(tmp_path, {"cpu/Dot.cpp": KERNEL.replace("REGISTER", "// ")}) / "cpu/Dot.cpp"
    command = ["g++", "-c", *flags, str(source), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert "target specific option mismatch" in done.stderr
    said = [compiled_for(" ".join([*command, "-MD -MF x.d"])), *done.stderr.splitlines()]
    lines = digest(diagnostics(said, tmp_path), load_natives([tmp_path]), [])
    assert lines[0].startswith(f"{source}:4:")
    assert lines[-1] == (
        "  hint: AVX512 is compiled with -mavx512f -mavx512bw; write the call below `#ifdef __AVX512BF16__`, and "
        "another way for processors without it; `cpu-flags` in pyproject.toml compile a file for more"
    )
