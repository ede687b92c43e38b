"""The ninja file: when a source is recompiled, and with which headers. The compiler is faked."""

from __future__ import annotations

import io
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from graft.base.base import Base
from graft.compile import ninja, store
from graft.compile.contents import Contents
from graft.compile.units import CXX, NVCC, Unit
from graft.core.console import StepLine
from graft.core.errors import CompileError
from graft.core.layout import DEBUG, REPOSITORY, Layout, TorchVersion
from graft.inputs.pin import load_pin
from graft.inputs.snapshot import Snapshot
from graft.inputs.toolchain import Toolchain
from ninja.ninja_syntax import Writer

# What narrow folders have.
NARROW_HEADERS = tuple(
    f"ATen/{name}.h" for name in ("Functions", "NativeFunctions", "Operators", "RedispatchFunctions")
)

# Records its arguments; rejects a source that contains `wide` with narrow headers, which a header that it includes
# lacks something of, and one that contains `wrong`.
COMPILER = r"""#!/bin/sh
for word; do
    case "$before" in -c) source=$word;; -o) object=$word;; -MF) depfile=$word;; esac
    before=$word
done
echo "$*" >> calls
case "$*" in *-Inarrow*) grep -q wide "$source" && { echo "h/T.h:1:1: error: no such name" >&2; exit 1; };; esac
case "$*" in *" -O0"*) grep -q immediate "$source" && { echo "$source:1:1: error: no immediate" >&2; exit 1; };; esac
grep -q slow "$source" && sleep 3
grep -q often "$source" && seq -f "$source:%g:2: error: wrong" 99 >&2 && exit 1
grep -q wrong "$source" && { echo "$source:1:2: error: wrong" >&2; exit 1; }
mkdir -p "$(dirname "$object")"
echo "$object: $source header.h $(sed -n 's,^// \(\.*/.*\),\1,p' "$source")" > "$depfile"
cp "$source" "$object"
"""


@dataclass
class Compiler:
    """A compiler, whose version may change."""

    compiler: str
    description: str = "version 1"
    flags: tuple[str, ...] = ("-O2",)


@dataclass
class Build:
    """A build with three sources, one of which is first compiled with narrow headers."""

    layout: Layout
    compiler: Compiler
    units: list[Unit]
    is_debugged: bool = False
    is_refused: bool = False
    compiled_before: str = ""

    def run(self) -> set[str]:
        """Run the compilers. Return the compiled sources."""
        calls = self.layout.work / "calls"
        calls.unlink(missing_ok=True)
        line = StepLine("compile")
        base, work = Base(Path("torch.whl"), Path("tree")), self.layout.work
        pin, toolchain = load_pin(REPOSITORY / "patches/2.13.0"), Toolchain("g++", "", "c++20")
        snapshot = Snapshot(work / "snapshot", {}, (), self.layout.natives, pin, toolchain, ())
        if self.is_debugged:
            snapshot = replace(snapshot, toolchain=toolchain.of_kind(DEBUG))
        with snapshot.translated():
            others = self.units
            ninja.make(
                *(self.layout, snapshot, [], base, {CXX: self.compiler}),
                others=others,
                jobs=2,
                line=line,
                is_refused=lambda: self.is_refused,
            )
        found = {re.search(r"-c (\S+)", call)[1] for call in self.calls()}  # type: ignore[index]
        counted, _, self.compiled_before = line.note.partition(", ")
        assert counted == f"{len(found)} of {len(self.units)} sources"
        return found

    def calls(self) -> list[str]:
        """Return the last arguments of the compiler."""
        calls = self.layout.work / "calls"
        return calls.read_text().splitlines() if calls.is_file() else []

    def write(self, name: str, text: str) -> None:
        (self.layout.work / name).parent.mkdir(parents=True, exist_ok=True)
        (self.layout.work / name).write_text(text)


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setattr(Layout, "store", tmp_path / "store")
    program = tmp_path / "a compiler"
    program.write_text(COMPILER)
    program.chmod(0o755)
    units = [
        Unit(Path("src/ATen/native/A.cpp"), Path("objects/A.o")),
        Unit(Path("src/ATen/native/B.cpp"), Path("objects/B.o"), ("-O3",)),
        Unit(Path("generated/library.cpp"), Path("objects/library.o"), (), (Path("narrow"),)),
    ]
    made = Build(Layout(TorchVersion("1.0"), (Path("/mine"),), tmp_path / "out"), Compiler(str(program)), units)
    for name in (*(f"narrow/{header}" for header in NARROW_HEADERS), "header.h", *(str(unit.source) for unit in units)):
        made.write(name, f"// {name}\n")
    return made


ALL = {"src/ATen/native/A.cpp", "src/ATen/native/B.cpp", "generated/library.cpp"}


def test_only_what_changed_is_compiled(build: Build) -> None:
    assert build.run() == ALL
    assert build.run() == set()
    build.write("src/ATen/native/A.cpp", "// another\n")
    assert build.run() == {"src/ATen/native/A.cpp"}
    build.write("header.h", "// another\n")
    assert build.run() == ALL


def test_another_compiler_compiles_everything(build: Build) -> None:
    """The command is the same: a package installed a newer compiler in its place."""
    build.run()
    build.compiler.description = "version 2"
    assert build.run() == ALL
    assert build.run() == set()


def test_other_flags_compile_what_they_are_for(build: Build) -> None:
    build.run()
    build.units[1] = Unit(build.units[1].source, build.units[1].target, ("-O1",))
    assert build.run() == {"src/ATen/native/B.cpp"}
    assert build.calls()[0].startswith("-O2 -O1 -Isrc -Igenerated/include ")
    build.compiler.flags = ("-O2", "-g")
    assert build.run() == ALL


def test_source_that_needs_more_than_narrow_headers_gets_the_base_s(build: Build) -> None:
    build.run()
    (call,) = (call for call in build.calls() if "library" in call)
    assert call.startswith("-Inarrow -O2 ")
    build.write("generated/library.cpp", "wide\n")
    assert build.run() == {"generated/library.cpp"}
    assert [call.startswith("-Inarrow") for call in build.calls()] == [True, False]
    # With other narrow headers it may compile at once, so it is tried again.
    build.write(f"narrow/{NARROW_HEADERS[0]}", "// another\n")
    assert build.run() == {"generated/library.cpp"}


def test_generated_source_with_an_error_of_its_own_is_compiled_once(build: Build) -> None:
    """Narrow headers have all that its text names, so others would say the same."""
    build.write("generated/library.cpp", "wrong\n")
    with pytest.raises(CompileError) as caught:
        build.run()
    assert caught.value.what == "generated/library.cpp:1:2: error: wrong"
    assert len([call for call in build.calls() if "library" in call]) == 1


def test_errors_name_the_user_s_file_and_the_rest_is_compiled(build: Build) -> None:
    build.write("src/ATen/native/A.cpp", "wrong\n")
    with pytest.raises(CompileError) as caught:
        build.run()
    assert caught.value.what == "/mine/A.cpp:1:2: error: wrong"
    assert caught.value.todo == "fix /mine/A.cpp and build again; compiled files are kept"
    assert {unit.target for unit in build.units if (build.layout.work / unit.target).is_file()} == {
        Path("objects/B.o"),
        Path("objects/library.o"),
    }


def test_error_that_ends_the_build_is_not_told_twice(build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    build.write("src/ATen/native/A.cpp", "often\n")
    with pytest.raises(CompileError):
        build.run()
    assert capsys.readouterr().err == ""


def test_own_sources_are_compiled_first_and_each_tells_its_first_error_meanwhile(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    build.units.reverse()
    build.write("generated/library.cpp", "slow\n")
    for name in ("A", "B"):
        build.write(f"src/ATen/native/{name}.cpp", "often\n")
    with pytest.raises(CompileError):
        build.run()
    sources = [call.partition(" -c ")[2].partition(" ")[0] for call in build.calls()]
    assert sources[0] != "generated/library.cpp"  # of two that run at once, either may be noted first
    told = capsys.readouterr().err.splitlines()
    assert sorted(told) == [f"/mine/{name}.cpp:1:2: error: wrong" for name in ("A", "B")]


def test_complete_output_is_in_a_log_where_the_error_is_a_digest(build: Build) -> None:
    build.write("src/ATen/native/A.cpp", "often\n")
    with pytest.raises(CompileError) as caught:
        build.run()
    log = build.layout.work / "compiler.log"
    assert len(caught.value.what.splitlines()) < 40
    assert caught.value.todo.splitlines()[1:] == [f"  the complete output, 99 lines: {log}"]
    assert len(log.read_text().splitlines()) == 99


def test_build_of_a_refused_folder_ends_at_once(build: Build) -> None:
    build.write("generated/library.cpp", "slow\n")
    build.is_refused = True
    with pytest.raises(CompileError):
        build.run()
    assert not (build.layout.work / "objects/library.o").exists()
    build.is_refused = False
    assert "generated/library.cpp" in build.run()


def test_what_narrow_headers_lack_is_not_told(build: Build) -> None:
    build.write("generated/library.cpp", "wide and wrong\n")
    with pytest.raises(CompileError) as caught:
        build.run()
    assert caught.value.what == "generated/library.cpp:1:2: error: wrong"


def test_launcher_is_put_before_the_compiler(build: Build, tmp_path: Path) -> None:
    program = tmp_path / "launch"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/launched\nshift\nexec "$@"\n')
    program.chmod(0o755)
    build.layout = replace(build.layout, launcher=f"{program} --quietly")
    assert build.run() == ALL
    assert (tmp_path / "launched").read_text().split() == ["--quietly"] * len(ALL)
    # The launcher does not affect objects, so removing it recompiles nothing.
    build.layout = replace(build.layout, launcher="")
    assert build.run() == set()
    build.write("header.h", "// another\n")
    assert build.run() == ALL
    assert (tmp_path / "launched").read_text().split() == ["--quietly"] * len(ALL)


def set_back(path: Path) -> None:
    """Give a file the time of a clock that went back, or of a package."""
    os.utime(path, (1e9, 1e9))


def test_content_decides_where_times_do_not(build: Build) -> None:
    build.run()
    build.write("src/ATen/native/A.cpp", "// another\n")
    set_back(build.layout.work / "src/ATen/native/A.cpp")
    assert build.run() == {"src/ATen/native/A.cpp"}
    build.write("header.h", "// another\n")
    set_back(build.layout.work / "header.h")
    assert build.run() == ALL
    assert build.run() == set()


def test_content_decides_after_a_build_that_failed(build: Build) -> None:
    build.write("src/ATen/native/A.cpp", "wrong\n")
    with pytest.raises(CompileError):
        build.run()
    build.write("src/ATen/native/B.cpp", "// another\n")
    set_back(build.layout.work / "src/ATen/native/B.cpp")
    build.write("src/ATen/native/A.cpp", "// right\n")
    assert build.run() == {"src/ATen/native/A.cpp", "src/ATen/native/B.cpp"}


def test_header_elsewhere_is_an_input(build: Build, tmp_path: Path) -> None:
    header = tmp_path / "elsewhere.h"
    header.write_text("// first\n")
    build.write("src/ATen/native/A.cpp", f"// {header}\n")
    build.run()
    before = Contents(build.layout.work)
    assert before.are_as_read() and before.outside
    header.write_text("// second\n")
    set_back(header)
    assert not before.are_as_read()
    assert build.run() == {"src/ATen/native/A.cpp"}
    after = Contents(build.layout.work)
    assert after.are_as_read() and after.outside != before.outside
    header.unlink()
    assert not after.are_as_read()


@pytest.fixture
def elsewhere(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """The same sources in another folder, after a build in the first."""
    stock = "../base/tree/torch/include/c10/stock.h"
    build.write(stock, "// stock\n")
    build.write("src/ATen/native/A.cpp", f"// {stock}\n")
    assert build.run() == ALL
    assert build.compiled_before == ""
    names = ("src", "generated", "narrow", "header.h")
    for name in names:
        source, target = tmp_path / "work" / name, tmp_path / "other/work" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    shutil.copytree(tmp_path / "base", tmp_path / "other/base")
    monkeypatch.setattr(Layout, "work", tmp_path / "other/work")
    return build


def test_what_another_folder_compiled_is_used(elsewhere: Build, tmp_path: Path) -> None:
    assert elsewhere.run() == set()
    assert elsewhere.compiled_before == "3 compiled before"
    for unit in elsewhere.units:
        assert (elsewhere.layout.work / unit.target).read_bytes() == (tmp_path / "work" / unit.target).read_bytes()
    # They are the folder's own from now on.
    shutil.rmtree(tmp_path / "store")
    assert elsewhere.run() == set()
    assert elsewhere.compiled_before == ""
    elsewhere.write("header.h", "// another\n")
    assert elsewhere.run() == ALL


def test_what_was_compiled_of_other_files_is_not_used(elsewhere: Build) -> None:
    elsewhere.write("header.h", "// another\n")
    assert elsewhere.run() == ALL


def test_what_was_compiled_of_another_source_or_with_other_flags_is_not_used(elsewhere: Build) -> None:
    elsewhere.write("src/ATen/native/A.cpp", "// another\n")
    elsewhere.units[1] = replace(elsewhere.units[1], flags=("-O1",))
    elsewhere.write(f"narrow/{NARROW_HEADERS[0]}", "// another\n")
    assert elsewhere.run() == ALL


def test_what_another_compiler_compiled_is_not_used(elsewhere: Build) -> None:
    elsewhere.compiler.description = "version 2"
    assert elsewhere.run() == ALL


def test_header_that_hides_another_is_an_input_though_it_was_not_read(elsewhere: Build) -> None:
    """Sources would include it, where they included the base's when they were compiled."""
    elsewhere.write("src/c10/own.h", "// hides nothing\n")
    assert elsewhere.run() == set()
    elsewhere.write("src/c10/stock.h", "// hides the base's\n")
    assert elsewhere.run() == {"src/ATen/native/A.cpp"}
    assert elsewhere.run() == set()


def test_header_that_hides_another_in_an_unbuilt_folder_is_an_input(elsewhere: Build) -> None:
    elsewhere.write("generated/include/c10/stock.h", "// hides the base's\n")
    assert elsewhere.run() == {"src/ATen/native/A.cpp"}


def test_header_beside_a_source_hides_another(elsewhere: Build) -> None:
    """Sources look for names in quotes in their own folder first."""
    elsewhere.write("src/ATen/native/c10/stock.h", "// hides the base's\n")
    assert elsewhere.run() == {"src/ATen/native/A.cpp"}
    assert elsewhere.run() == set()


def test_object_without_known_inputs_is_not_stored(build: Build, tmp_path: Path) -> None:
    """As a compiler that was killed leaves it, or one that writes no depfile."""
    program = Path(build.compiler.compiler)
    program.write_text(COMPILER.replace('echo "$object: ', 'true "$object: '))
    build.run()
    assert not [*tmp_path.glob("store/*/*")]


def test_what_an_edited_compiler_compiled_is_not_used(elsewhere: Build) -> None:
    """It may be a script whose version stays."""
    program = Path(elsewhere.compiler.compiler)
    program.write_text(f"{program.read_text()}# another\n")
    assert elsewhere.run() == ALL


def test_few_objects_of_one_source_are_kept(build: Build, tmp_path: Path) -> None:
    for number in range(store._STATES + 2):
        build.write("header.h", f"// {number}\n")
        assert build.run() == ALL
    for folder in (tmp_path / "store").iterdir():
        assert len([*folder.iterdir()]) == store._STATES
    build.write("header.h", f"// {store._STATES}\n")
    assert build.run() == set()


def test_source_that_asks_what_is_there_is_not_stored(build: Build, elsewhere: Build) -> None:
    elsewhere.write("src/ATen/native/A.cpp", "#if __has_include(<mine.h>)\n")
    assert elsewhere.run() == {"src/ATen/native/A.cpp"}
    (elsewhere.layout.work / "objects/A.o").unlink()
    assert elsewhere.run() == {"src/ATen/native/A.cpp"}


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"not JSON\n"])
def test_damaged_object_is_compiled_again(elsewhere: Build, tmp_path: Path, damage: bytes) -> None:
    for path in (tmp_path / "store").glob("*/*"):
        path.write_bytes(damage)
    assert elsewhere.run() == ALL
    for path in (tmp_path / "store").glob("*/*"):
        path.write_bytes(path.read_bytes()[:-1])
        (elsewhere.layout.work / "objects/A.o").unlink(missing_ok=True)
    assert elsewhere.run() == {"src/ATen/native/A.cpp"}


def test_object_that_a_killed_build_left_is_not_used(build: Build) -> None:
    build.write(f"objects/A.o{store.STORED}", "of another source\n")
    assert build.run() == ALL
    assert (build.layout.work / "objects/A.o").read_text() == "// src/ATen/native/A.cpp\n"


def test_objects_with_paths_of_their_folder_are_not_stored(build: Build, tmp_path: Path) -> None:
    build.is_debugged = True
    assert build.run() == ALL
    assert not [*tmp_path.glob("store/*")]


def test_inputs_with_special_characters_are_known_after_an_object_was_taken(build: Build, tmp_path: Path) -> None:
    header = tmp_path / "a $b#.h"
    header.write_text("// first\n")
    escaped = str(header).replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$")
    build.write("src/ATen/native/A.cpp", f"// {escaped}\n")
    build.run()
    (build.layout.work / "objects/A.o").unlink()
    assert build.run() == set()
    assert build.compiled_before == "1 compiled before"
    assert build.run() == set()
    header.write_text("// second\n")
    assert build.run() == {"src/ATen/native/A.cpp"}


def test_store_deletes_what_was_not_used_for_longest(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.run()
    first = {*tmp_path.glob("store/*/*")}
    for path in first:
        set_back(path)
    size = sum(path.stat().st_size for path in first)
    monkeypatch.setattr(store, "_LIMIT", size + 1)
    build.write("src/ATen/native/A.cpp", "// another\n")
    build.run()
    left = {*tmp_path.glob("store/*/*")}
    assert len(left) == len(first) and len(left - first) == 1
    assert all([*folder.iterdir()] for folder in (tmp_path / "store").iterdir())
    assert sum(path.stat().st_size for path in left) <= size + 1


def test_root_of_the_folder_is_searched_for_names_in_quotes(build: Build) -> None:
    """As the scanner does, see test_includes.py. nvcc hands it to the C++ compiler."""
    build.run()
    assert all(" -iquotesrc/ATen/native " in call for call in build.calls())
    rules = io.StringIO()
    nvcc = {NVCC: Toolchain("nvcc", "", "c++20"), CXX: build.compiler}
    ninja.write_units(Writer(rules, width=999), [], nvcc)  # type: ignore[arg-type]
    (line,) = re.findall(r"rule nvcc\n  command = (.*)", rules.getvalue())
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


def test_error_without_optimization_alone_is_none(tried: Build) -> None:
    tried.write("src/ATen/native/cpu/K.cpp", "immediate\n")
    assert tried.run() == {"src/ATen/native/cpu/K.cpp"}
    assert [call.endswith(" -O0") for call in tried.calls()] == [True, False]


def test_error_that_the_wheel_would_have_is_told(tried: Build) -> None:
    tried.write("src/ATen/native/cpu/K.cpp", "wrong\n")
    with pytest.raises(CompileError) as caught:
        tried.run()
    assert caught.value.what == "/mine/cpu/K.cpp:1:2: error: wrong"
