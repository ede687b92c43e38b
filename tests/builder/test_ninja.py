"""What ninja runs: compilers, with which headers and in which order; and what is told of their errors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from builds import ALL, LIBRARY, NARROW_HEADERS, A, Build
from graft.compile import ninja
from graft.compile.units import Unit
from graft.core.errors import BuildError
from graft.inputs.toolchain import Toolchain
from helpers import Capture, program, refused


def test_source_that_needs_more_than_narrow_headers_gets_the_base_s(build: Build) -> None:
    build.run()
    (call,) = (call for call in build.calls() if "library" in call)
    assert call.startswith("-Inarrow -O2 ")
    build.write(LIBRARY, "wide\n")
    assert build.run() == {LIBRARY}
    assert [call.startswith("-Inarrow") for call in build.calls()] == [True, False]
    # With other narrow headers it may compile at once, so it is tried again.
    build.write(f"narrow/{NARROW_HEADERS[0]}", "// another\n")
    assert build.run() == {LIBRARY}


@pytest.mark.parametrize(("text", "calls"), [("wrong\n", 1), ("wide and wrong\n", 2)])
def test_error_of_a_generated_source_itself_is_told(build: Build, text: str, calls: int) -> None:
    """Narrow headers have all that its text names, so that others would say the same. What they lack is not told."""
    build.write(LIBRARY, text)
    assert refused(BuildError, build.run).what == "generated/library.cpp:1:2: error: wrong"
    assert len([call for call in build.calls() if "library" in call]) == calls


def test_errors_name_the_user_s_file_and_the_rest_is_compiled(build: Build) -> None:
    build.write(A, "wrong\n")
    error = refused(BuildError, build.run)
    assert error.what == "/mine/A.cpp:1:2: error: wrong"
    assert error.todo == "fix /mine/A.cpp and build again; compiled files are kept"
    made = [unit.target for unit in build.units if (build.layout.work / unit.target).is_file()]
    assert made == [Path("objects/B.o"), Path("objects/library.o")]


def test_error_is_a_digest_of_a_log_and_not_told_twice(build: Build, capsys: Capture) -> None:
    build.write(A, "often\n")
    error, log = refused(BuildError, build.run), build.layout.work / "compiler.log"
    assert capsys.readouterr().err == ""
    assert len(error.what.splitlines()) < 40
    assert error.todo.splitlines()[1:] == [f"  the complete output, 99 lines: {log}"]
    assert len(log.read_text().splitlines()) == 99


def test_own_sources_are_compiled_first_and_each_tells_its_first_error_meanwhile(build: Build, capsys: Capture) -> None:
    build.units.reverse()
    build.write(LIBRARY, "slow\n")
    for name in ("A", "B"):
        build.write(f"src/ATen/native/{name}.cpp", "often\n")
    refused(BuildError, build.run)
    sources = [call.partition(" -c ")[2].partition(" ")[0] for call in build.calls()]
    assert sources[0] != LIBRARY  # of two that run at once, either may be noted first
    told = capsys.readouterr().err.splitlines()
    assert sorted(told) == [f"/mine/{name}.cpp:1:2: error: wrong" for name in ("A", "B")]


def test_other_capabilities_of_the_same_sources_are_compiled_last(build: Build) -> None:
    for name in ("DEFAULT", "AVX2"):
        build.units.insert(0, Unit(Path(f"{A[:-4]}{name}.cpp"), Path(f"objects/{name}.o"), capability=name))
        build.write(str(build.units[0].source), "")
    build.toolchain = replace(build.toolchain, capabilities=("DEFAULT", "AVX2"))
    build.run()
    rules = (build.layout.work / "build.ninja").read_text(encoding="utf-8")
    assert re.findall(r"^build objects/(\w+)\.o", rules, re.M) == ["DEFAULT", "A", "B", "library", "AVX2"]


def test_build_of_a_refused_folder_ends_at_once(build: Build) -> None:
    build.write(LIBRARY, "slow\n")
    build.is_refused = True
    refused(BuildError, build.run)
    assert not (build.layout.work / "objects/library.o").exists()
    build.is_refused = False
    assert LIBRARY in build.run()


def test_launcher_is_put_before_the_compiler(build: Build, tmp_path: Path) -> None:
    launcher = program(tmp_path / "launch", f'echo "$1" >> {tmp_path}/launched\nshift\nexec "$@"')
    build.layout = replace(build.layout, launcher=f"{launcher} --quietly")
    assert build.run() == ALL
    assert (tmp_path / "launched").read_text().split() == ["--quietly"] * len(ALL)
    # The launcher does not affect objects, so removing it recompiles nothing.
    build.layout = replace(build.layout, launcher="")
    assert build.run() == set()


def test_root_of_the_folder_is_searched_for_names_in_quotes(build: Build) -> None:
    """As the scanner does, see test_includes.py. nvcc hands it to the C++ compiler."""
    build.run()
    assert all(" -iquotesrc/ATen/native " in call for call in build.calls())
    assert any(call.startswith("-O2 -O3 -Isrc -Igenerated/include ") for call in build.calls())
    line = ninja.command_of(Unit(Path("A.cu"), Path("A.o")), Toolchain("nvcc", "", "c++20"))
    assert " -Xcompiler=-iquotesrc/ATen/native " in line and " -iquotesrc" not in line


@pytest.fixture
def tried(build: Build) -> Build:
    """The same sources, and one that is tried for a CPU capability."""
    flags = ("-O3", "-mavx512f", "-DCPU_CAPABILITY=AVX512")
    unit = Unit(Path("src/ATen/native/cpu/K.cpp"), Path("objects/native/cpu/K.cpp.AVX512.tried"), flags, is_tried=True)
    build.write(str(unit.source), "// a kernel\n")
    return replace(build, units=[unit])


def test_source_is_tried_without_optimization_and_thrown_away(tried: Build) -> None:
    assert tried.run() == {"src/ATen/native/cpu/K.cpp"}
    (call,) = tried.calls()
    assert " -O3 -mavx512f " in call and call.endswith(" -O0")
    assert (tried.layout.work / tried.units[0].target).read_bytes() == b""
    assert tried.run() == set()
    tried.write("header.h", "// another\n")
    assert tried.run() == {"src/ATen/native/cpu/K.cpp"}


def test_error_of_a_tried_source_is_told_unless_it_is_of_no_optimization_alone(tried: Build) -> None:
    tried.write("src/ATen/native/cpu/K.cpp", "immediate\n")
    assert tried.run() == {"src/ATen/native/cpu/K.cpp"}
    assert [call.endswith(" -O0") for call in tried.calls()] == [True, False]
    tried.write("src/ATen/native/cpu/K.cpp", "wrong\n")
    assert refused(BuildError, tried.run).what == "/mine/cpu/K.cpp:1:2: error: wrong"


def test_paths_with_characters_of_a_shell_and_of_ninja(build: Build, tmp_path: Path) -> None:
    """As in GRAFT_HOME, where toolkits and the builder's Python are."""
    folder = tmp_path / "a $b|c'd"
    folder.mkdir()
    build.compiler.compiler = str(Path(build.compiler.compiler).rename(folder / "compiler"))
    build.units[1] = replace(build.units[1], flags=(f"-I{folder}",))
    assert build.run() == ALL
    assert any(f" -I{folder} " in call for call in build.calls())
