"""What is compiled, with which flags: the user's, those of settings, and those of each CPU capability."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builds import GXX
from graft.codegen import NARROW, NARROW_OF_FORMULAS, PARTS
from graft.compile.diagnostics import compiled_for, diagnostics
from graft.compile.messages import digest
from graft.compile.units import _WARNINGS, INCLUDES, Unit, Units
from graft.core import extra_flags as module
from graft.core.architecture import ARCHITECTURES
from graft.core.errors import UsageError
from graft.core.extra_flags import NO_EXTRA, ExtraFlags, extra_flags
from graft.core.layout import Layout, TorchVersion
from graft.inputs.native import load_natives
from graft.inputs.snapshot import take_snapshot
from graft.inputs.toolchain import Toolchain
from helpers import Patch, write


@pytest.mark.parametrize("given", [None, (), [], [""]])
def test_nothing_is_nothing(given: list[str] | None) -> None:
    assert extra_flags(given, given, given) == NO_EXTRA
    assert NO_EXTRA.settings == ()


def test_flags_are_kept_in_order() -> None:
    words = ["-O3", "-D", "X=a b", "-march=x86-64-v3", "-ffast-math", "-std=c++23", "-w", "--param", "x=1"]
    joined = ("-O3", "-DX=a b", "-march=x86-64-v3", "-ffast-math", "-std=c++23", "-w", "--param=x=1")
    assert extra_flags(words).cflags == joined
    for_cuda = ["--use_fast_math", "-lineinfo", "-maxrregcount", "64", "-Xcompiler", "-O3,-fopenmp", "-Xptxas", "-v"]
    expected = ("--use_fast_math", "-lineinfo", "-maxrregcount", "64", "-Xcompiler=-O3,-fopenmp", "-Xptxas=-v")
    assert extra_flags(None, for_cuda).cuda_cflags == expected


@pytest.mark.parametrize(
    "words",
    [
        *(["-D_GLIBCXX_USE_CXX11_ABI=0"], ["-D", "_GLIBCXX_USE_CXX11_ABI=0"], ["-U_GLIBCXX_USE_CXX11_ABI"]),
        *(["-D_GLIBCXX_DEBUG"], ["-D_GLIBCXX_DEBUG=1"], ["-D_GLIBCXX_DEBUG_PEDANTIC"], ["-UNDEBUG"]),
        *(["-fabi-version=2"], ["-fpack-struct=4"], ["-fshort-enums"], ["-fshort-wchar"], ["-freg-struct-return"]),
        *(["-m32"], ["-mx32"], ["-mabi=ms"], ["-mlong-double-64"], ["-malign-double"], ["-mno-sse2"]),
        *(["-fno-exceptions"], ["-fno-rtti"], ["-fvisibility=default"], ["-fno-visibility-inlines-hidden"]),
        *(["-c"], ["-E"], ["-S"], ["-o", "x.o"], ["-ox.o"], ["-x", "c"], ["@flags"], ["-MD"], ["-MF"], ["-###"]),
        *(["-lcurl"], ["-L", "/lib"], ["-Wl,-z,defs"], ["-shared"], ["-flto"], ["-fsanitize=address"], ["--coverage"]),
        *(["-fPIE"], ["-fno-pic"], ["-fplugin=x.so"], ["-specs=x"], ["-B/x"], ["--sysroot=/x"], ["-nostdinc++"]),
        *(["-idirafter", "/usr"], ["-std=c11"], ["-std=gnu"]),
    ],
    ids=" ".join,
)
def test_refusal_names_the_flag_why_and_what_to_do(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^the compiler flag \S+ cannot be used\n  why:  \S.*\n  next: \S") as caught:
        extra_flags(["-O3", *words, "-g"])
    assert words[0] in caught.value.what or words == ["-MF"]
    with pytest.raises(UsageError):
        extra_flags(None, words)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        # What nvcc passes on.
        *((["-Xcompiler", "-O2,-fno-rtti"], "-fno-rtti"), (["-Xcompiler=-fno-rtti"], "-fno-rtti")),
        (["--compiler-options", "'-O2 -fno-rtti'"], "-fno-rtti"),
        # What it does is the build's.
        *((words, words[0]) for words in (["-ccbin", "g++"], ["-dc"], ["-rdc=true"], ["-ptx"], ["--keep"])),
    ],
)
def test_flags_of_nvcc_that_cannot_be_used(words: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=f"compiler flag {named} cannot be used"):
        extra_flags(None, words)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["-O3"], r"'-O3' is not a list\n  next: write \['-O3'\]"),
        ([[3]], "3 is not text"),
        ([3], "3 is not a list"),
        ([["-DX=\n"]], "not text in one line"),
        ([["mine.cpp"]], "mine.cpp: it is not a compiler flag"),
        ([["-O3", "mine"]], "mine: it is not a compiler flag"),
        ([None, ["-O3", "mine.cu"]], "mine.cu: it is not a compiler flag"),
        ([["-D"]], "-D has no value"),
        ([["-include"]], "-include has no value"),
        ([None, None, ["/none/of/these"]], "include path /none/of/these: no such folder"),
        ([None, None, "/tmp"], "'/tmp' is not a list"),
    ],
)
def test_what_is_no_list_of_flags_is_refused(given: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        extra_flags(*given)


def test_folders_among_flags_are_include_paths(tmp_path: Path, monkeypatch: Patch) -> None:
    """Relative names are those of the user's folder, not of the folder in which compilers run."""
    for name in "abc":
        (tmp_path / name).mkdir()
    (tmp_path / "first.h").touch()
    monkeypatch.chdir(tmp_path)
    flags = extra_flags(["-Ia", "-O3", "-isystem", "b", "-include", "first.h", "-include", "its.h"], ["-I", "c"], ["a"])
    assert flags.include_paths == (tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert flags.cflags == ("-O3", "-include", str(tmp_path / "first.h"), "-include", "its.h")
    assert flags.cuda_cflags == ()


def test_flags_for_this_processor_name_it(monkeypatch: Patch) -> None:
    def flags(*words: str) -> list[tuple[str, ...]]:
        return [extra_flags(words).cflags, extra_flags(None, [f"-Xcompiler={word}" for word in words]).cuda_cflags]

    here = flags("-march=native")
    assert all(re.fullmatch(r"-DGRAFT_PROCESSOR=\w{12}", each[-1]) for each in here)
    assert all("PROCESSOR" not in " ".join(each) for each in flags("-march=x86-64-v3"))
    monkeypatch.setattr(module, "_processor", lambda: "another")
    assert flags("-march=native")[0] != here[0]


@pytest.mark.parametrize("word", ["-std=c++17", "-std=gnu++17", "-std=c++98", "-std=c++1z", "--std=c++17"])
def test_older_standard_than_that_of_the_headers_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"this PyTorch's headers need C\+\+20"):
        extra_flags(None, [word]).require_standard("c++20")
    extra_flags(["-std=c++17"]).require_standard("c++17")
    for newer in ("-std=c++20", "-std=gnu++2a", "-std=c++2b", "-std=c++26"):
        extra_flags([newer]).require_standard("c++20")


TWO = extra_flags(["-DMINE"], ["-DFOR_NVCC"])
ONE_CAPABILITY = replace(GXX, capabilities=("DEFAULT",))


@pytest.fixture
def units_with(units: Callable[..., Units]) -> Callable[[ExtraFlags], dict[str, Unit]]:
    """Return a function that returns the units of a folder with such flags, by source."""
    kernel = "REGISTER_DISPATCH(mine_stub, &mine)\n"
    sources = {"Mine.cpp": "", "cpu/MineKernel.cpp": kernel, "cuda/Mine.cu": "", "cuda/Mine.cpp": ""}
    ufuncs = ("ATen/UfuncCPU_x.cpp", "vectorized/x.cpp", "cuda/UfuncCUDA_x.cu")
    generated = [f"mine/{name}" for name in ("library.cpp", "bindings.cpp", "cuda.cpp", *ufuncs)]

    def units_with(extra: ExtraFlags) -> dict[str, Unit]:
        found = units(sources, generated, ONE_CAPABILITY, has_nvcc=True, extra=extra)
        every = [*found.library, *found.bindings, *found.cuda, *found.fixed.values()]
        return {str(each.source): each for each in every}

    return units_with


def test_only_the_folder_s_own_sources_get_them(units_with: Callable[[ExtraFlags], dict[str, Unit]]) -> None:
    before, after = units_with(NO_EXTRA), units_with(TWO)
    changed = {name: after[name].flags[len(before[name].flags) :] for name in after if after[name] != before[name]}
    own = ("Mine.cpp", "cpu/MineKernel.cpp", "cuda/Mine.cpp")
    assert changed == {
        **{f"src/ATen/native/{name}": ("-DMINE",) for name in own},
        "src/ATen/native/cuda/Mine.cu": ("-DFOR_NVCC",),
    }
    assert len(after) > len(changed) + 6


def test_include_paths_follow_pytorch_s(units_with: Callable[[ExtraFlags], dict[str, Unit]], tmp_path: Path) -> None:
    """A folder with another PyTorch's headers hides none."""
    flags = units_with(extra_flags(None, None, [tmp_path]))["src/ATen/native/cuda/Mine.cu"].flags
    assert flags[-len(INCLUDES) - 1 :] == (*(f"-I{folder}" for folder in INCLUDES), f"-I{tmp_path}")


@pytest.mark.parametrize(
    ("files", "is_warned"),
    [
        ({}, True),
        ({"adopted.json": "{}"}, False),
        ({"places.json": '{"root": "/checkout", "option": "source", "places": {}}'}, False),
        ({"pyproject.toml": '[tool.graft]\ncxx-flags = "-Werror"\n'}, False),
    ],
    ids=["own", "adopted", "of a checkout", "with flags for warnings"],
)
def test_own_sources_are_compiled_with_warnings(
    tmp_path: Path, units: Callable[..., Units], files: dict[str, str], is_warned: bool
) -> None:
    write(tmp_path, {"native_functions.yaml": "", "A.cpp": "", **files})
    found = units(load_natives([tmp_path]), toolchain=ONE_CAPABILITY)
    assert ["-Wall" in each.flags for each in found.library if each.source.name == "A.cpp"] == [is_warned]


def test_settings_of_a_folder_are_for_its_sources(tmp_path: Path, units: Callable[..., Units]) -> None:
    table = """[tool.graft]
native = ["native", "other"]
sources = ["csrc/*.cc", "csrc/*.cu"]
include-dirs = ["include", "/usr/include"]
define = "BOTH"
cxx-flags = "-DFOR_CXX"
nvcc-flags = "-DFOR_NVCC"
"""
    write(tmp_path, {"pyproject.toml": table, "include/a.h": "", "csrc/A.cc": "", "csrc/A.cu": "#include <a.h>\n"})
    write(tmp_path, {"native/B.cpp": "", "alone/C.cpp": ""})
    natives = load_natives([tmp_path.resolve() / "native", tmp_path.resolve() / "alone"])
    found = units(natives, toolchain=ONE_CAPABILITY, has_nvcc=True)
    named = {each.source.name: each for each in (*found.library, *found.cuda)}
    searched = ("-Isrc/ATen/native/include", "-I/usr/include")
    assert (
        named["A.cc"].flags[:6] == ("-O3", *_WARNINGS, "-DBOTH", "-DFOR_CXX") and named["A.cc"].flags[-2:] == searched
    )
    assert named["A.cu"].flags[:2] == ("-DBOTH", "-DFOR_NVCC") and named["A.cu"].flags[-2:] == searched
    assert named["B.cpp"].flags == named["A.cc"].flags
    assert named["C.cpp"].flags == ("-O3", *_WARNINGS)


def test_they_are_in_the_stamp(tmp_path: Path) -> None:
    native = write(tmp_path / "native", {"native_functions.yaml": "- func: probe(Tensor self) -> Tensor\n"})
    layout = Layout(TorchVersion("2.13.0"), (native,), tmp_path / "out")
    others = [extra_flags(["-O3"]), extra_flags(None, ["-O3"]), extra_flags(None, None, [tmp_path]), TWO]
    taken = [take_snapshot(replace(layout, extra=each)) for each in (NO_EXTRA, ExtraFlags(), *others)]
    assert len({each.stamp for each in taken}) == 1 + len(others)
    assert len({each.stamp_of_generated for each in taken}) == 1
    assert taken[0].settings == take_snapshot(layout).settings
    with pytest.raises(UsageError, match=r"-std=c\+\+17"):
        take_snapshot(replace(layout, extra=extra_flags(["-std=c++17"])))


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
def test_units_have_their_parts_where_edits_matter(
    units: FindUnits, is_for_edits: bool, sanitizers: tuple[str, ...]
) -> None:
    files = [f"large/{name}.cpp" for name in ("formulas", "autograd", "operators", "library", "bindings")]
    toolchain = replace(GXX, is_for_edits=is_for_edits, sanitizers=sanitizers)
    found = units({"A.cpp": ""}, [*files, "small/library.cpp"], toolchain)
    is_quick = is_for_edits and not sanitizers
    parts = [f"large/{part}" for part in (PARTS if is_for_edits else ["library"])]
    generated = [unit for unit in found.library if not unit.is_own]
    for unit in (*generated, *found.bindings):
        folders = [NARROW_OF_FORMULAS, NARROW] if unit.source.stem in ("formulas", "library") else [NARROW]
        assert [*unit.narrow] == [unit.source.parent / name for name in folders]
        assert unit.is_light is (unit.source.stem == "formulas")
    assert [f"{unit.source}" for unit in generated] == [
        f"generated/units/{each}.cpp" for each in (*parts, "small/library")
    ]
    assert all(("-O1" in unit.flags) is is_quick for unit in (*generated, *found.bindings))
    of_registrations = [unit for unit in generated if unit.source.stem != "formulas"]
    assert all(("graft_registered.h" in unit.flags) is is_quick for unit in of_registrations)
    assert not any(
        "graft_registered.h" in unit.flags for unit in {*generated} - {*of_registrations} | {*found.bindings}
    )


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
