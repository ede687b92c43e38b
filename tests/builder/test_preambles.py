"""The preamble of an edited source: compiled separately, used from the next edit on, and invisible otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from faked_compiler import snapshot_of
from graft.base.base import Base
from graft.compile import ninja
from graft.compile.preambles import Preambles, preamble_of
from graft.compile.units import CXX, Unit
from graft.core.console import StepLine
from graft.core.errors import CompileError
from graft.core.files import write_if_changed
from graft.core.layout import Layout, TorchVersion
from graft.inputs.native import NativeFolder, together
from graft.inputs.toolchain import Toolchain

SOURCE = Path("src/ATen/native/cpu/Mine.cpp")

# A header next to the source, one in the parent folder, and one in the compiler's search path.
PREAMBLE = """// Mine.
#define MINE 1
#include "Beside.h"
#include "../Above.h"
#include <ATen/Known.h>
"""
HEADERS = ("src/ATen/native/cpu/Beside.h", "src/ATen/native/Above.h", "src/ATen/Known.h")

Build = Callable[[str], bool]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Layout, "work", tmp_path)
    monkeypatch.setattr(Layout, "store", tmp_path / "store")
    (tmp_path / SOURCE.parent).mkdir(parents=True)
    for name in HEADERS:
        (tmp_path / name).write_text(f"#pragma once\nstruct {Path(name).stem} {{}};\n")
    return tmp_path


@pytest.fixture
def build(work: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Compile a text for edits. Return whether that used its preamble."""
    mine = Path("/mine")
    layout = Layout(TorchVersion("1.0"), (mine,), Path("/out"))
    toolchain = replace(Toolchain("g++", "a compiler", "c++20"), is_for_edits=True)
    use = Preambles.use
    used: list[bool] = []

    def watched(self: Preambles, units: Iterable[Unit]) -> dict[Unit, Unit]:
        made = use(self, units)
        used.extend(bool(each.needed) for each in made.values())
        return made

    monkeypatch.setattr(Preambles, "use", watched)
    snapshot = snapshot_of(work, toolchain, together([NativeFolder(path=mine, paths={})]))

    def build(text: str) -> bool:
        write_if_changed(work / SOURCE, text)  # as a build does
        units = [Unit(SOURCE, Path("objects/native/cpu/Mine.o"))]
        base, line = Base(work / "torch.whl", work), StepLine("compile")
        used.clear()
        ninja.make(layout, snapshot, [], base, {CXX: toolchain}, others=units, jobs=2, line=line)
        return used == [True]

    return build


def test_unchanged_source_is_not_compiled_again(build: Build, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        build(PREAMBLE + function(number))
    (work / HEADERS[2]).write_text(f"#pragma once\nstruct {Path(HEADERS[2]).stem} {{ int more; }};\n")
    build(PREAMBLE + function(3))
    target = work / "objects/native/cpu/Mine.o"
    before = target.stat().st_mtime_ns
    build(PREAMBLE + function(3))
    assert target.stat().st_mtime_ns == before


def function(number: int) -> str:
    return f"Beside beside; Above above; Known known;\nint f() {{ return {number} * MINE; }}\n"


def test_preamble_is_used_from_the_second_edit_on(build: Build, work: Path) -> None:
    uses = [build(PREAMBLE + function(number)) for number in (1, 2, 3, 3, 4)]
    assert uses == [False, False, True, False, True]  # the fourth is compiled already
    assert (work / "preambles/native/cpu/Mine.h.gch").is_file()


def test_another_preamble_or_header_is_compiled_anew(build: Build, work: Path) -> None:
    for number in range(3):
        build(PREAMBLE + function(number))
    assert not build(f"{PREAMBLE}#define MORE\n" + function(4))
    assert build(f"{PREAMBLE}#define MORE\n" + function(5))
    (work / HEADERS[0]).write_text("#pragma once\nstruct Beside { int more; };\n")
    more = function(6) + "int g() { return beside.more; }\n"
    assert not build(f"{PREAMBLE}#define MORE\n" + more)


def test_preamble_whose_headers_compute_names_is_not_used(build: Build, work: Path) -> None:
    """What such a name finds is not known, so it may be something else the next time."""
    header = "#define OPT <opt.h>\n#if __has_include(OPT)\n#endif\n"
    (work / HEADERS[0]).write_text(f"#pragma once\nstruct Beside {{}};\n{header}")
    assert [build(PREAMBLE + function(number)) for number in (1, 2, 3, 4)] == [False] * 4


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        ("int twice;\n", False),
        ("#pragma once\nint twice;\n", True),
        ("// Mine.\n/* Of\nlines. */\n#ifndef BESIDE\n#define BESIDE\nint twice;\n#endif\n", True),
        ("#ifndef OTHER\n#define BESIDE\n#endif\nint twice;\n", False),
    ],
)
@pytest.mark.parametrize("name", ["Beside.cpp", "/elsewhere/Beside.h"])
def test_file_without_a_guard_is_read_once(
    build: Build, work: Path, tmp_path: Path, name: str, text: str, is_used: bool
) -> None:
    """Such as another source, which the preamble and the source itself would include."""
    beside = work / SOURCE.with_name(name) if "/" not in name else tmp_path / "elsewhere.h"
    beside.write_text(text)
    include = f'#include "{name if "/" not in name else beside}"\n'
    assert [build(f"{include}int f() {{ return {number}; }}\n") for number in (1, 2, 3)] == [False, False, is_used]


@pytest.mark.parametrize("edits", [1, 2, 3])
def test_message_names_the_folder_s_own_file(build: Build, edits: int) -> None:
    for number in range(edits):
        build(PREAMBLE + function(number))
    with pytest.raises(CompileError, match=r"/mine/cpu/Mine.cpp:6:10: error: Typo.h: No such file") as caught:
        build(f'{PREAMBLE}#include "Typo.h"\n' + function(4))
    assert "preamble" not in str(caught.value)


def test_message_names_it_also_where_a_header_is_gone(build: Build, work: Path) -> None:
    """A generated one, like that of a renamed operator."""
    for number in range(3):
        build(PREAMBLE + function(number))
    (work / HEADERS[2]).unlink()
    with pytest.raises(CompileError, match=r"/mine/cpu/Mine.cpp:5:10: error: ATen/Known.h: No such") as caught:
        build(PREAMBLE + function(4))
    assert "preamble" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "preamble"),
    [
        ("int f();\n", ""),
        ("\n// A.\n# include <a>\n#define B\nint f();\n#include <c>\n", "\n// A.\n# include <a>\n#define B\n"),
        ("#include <a>\n#ifdef B\n#include <b>\n#endif\n", "#include <a>\n"),
        ("#define A \\\n  1\n#include <a>\n", ""),
    ],
)
def test_preamble_includes_and_defines(text: str, preamble: str) -> None:
    assert preamble_of(text) == preamble
