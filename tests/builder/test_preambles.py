"""The preamble of a source that is edited again: compiled separately, used from then on, and invisible otherwise."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from builds import GXX, Build
from graft.compile.idle import do, doing, postponing
from graft.compile.preambles import VARIABLE, preamble_of
from graft.compile.units import Unit
from graft.core.errors import BuildError
from graft.core.files import try_lock, write_atomically, write_if_changed
from helpers import refused

SOURCE = Path("src/ATen/native/cpu/Mine.cpp")

# Headers next to the source, of which one has its name; one in the parent folder; one in the compiler's search path.
PREAMBLE = """// Mine.
#define MINE 1
#include "Mine.h"
#include "Beside.h"
#include "../Above.h"
#include <ATen/Known.h>
"""
HEADERS = ("src/ATen/native/cpu/Mine.h", "src/ATen/native/cpu/Beside.h", "src/ATen/native/Above.h", "src/ATen/Known.h")


@pytest.fixture
def edited(build: Build) -> Build:
    """A build for edits, with g++."""
    build.toolchain = build.compiler = replace(GXX, is_for_edits=True)
    build.units = [Unit(SOURCE, Path("objects/native/cpu/Mine.o"))]
    for name in HEADERS:
        build.write(name, f"#pragma once\nstruct {Path(name).stem} {{}};\n")
    return build


def uses(build: Build, *texts: str) -> list[bool]:
    """Compile each text as the source. Return whether that used its preamble."""
    used = []
    for text in texts:
        write_if_changed(build.layout.work / SOURCE, text)  # as a build does
        build.make()
        used.append("-include" in (build.layout.work / "build.ninja").read_text())
    return used


def function(number: int) -> str:
    return f"Beside beside; Above above; Known known;\nint f() {{ return {number} * MINE; }}\n"


def edits(*numbers: int, preamble: str = PREAMBLE) -> list[str]:
    """Texts with the same preamble."""
    return [preamble + function(number) for number in numbers]


def test_unchanged_source_is_not_compiled_again(edited: Build) -> None:
    uses(edited, *edits(1, 2, 3, 4))
    edited.write(HEADERS[3], "#pragma once\nstruct Known { int more; };\n")
    uses(edited, *edits(5))
    target = edited.layout.work / "objects/native/cpu/Mine.o"
    before = target.stat().st_mtime_ns
    uses(edited, *edits(5))
    assert target.stat().st_mtime_ns == before


def test_preamble_is_made_after_the_build_where_that_waits(edited: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    made = edited.layout.work / "preambles/native/cpu/Mine.preamble.h.gch"
    with postponing() as later:
        assert uses(edited, *edits(1)) == [False]
        assert not later
        assert uses(edited, *edits(2)) == [False]
        assert not made.exists()
        monkeypatch.setattr(os, "nice", lambda _: 0)  # of the processes, not of this one
        do(later)
        assert made.is_file()
        assert uses(edited, *edits(3, 4)) == [True, True]


def test_another_process_has_the_headers(edited: Build) -> None:
    with (edited.layout.work / "preambles.lock").open("a") as file:
        assert try_lock(file)
        assert uses(edited, *edits(1, 2, 3, 4, 5)) == [False] * 5
    assert uses(edited, *edits(6, 7, 8, 9)) == [False, False, False, True]


@pytest.mark.parametrize(("variable", "value"), [("CI", "true"), (VARIABLE, "0")])
def test_nothing_is_left_for_later(edited: Build, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(variable, value)
    with postponing() as later:
        assert uses(edited, *edits(1, 2, 3, 4)) == [False, False, False, variable == "CI"]
        assert not later


def test_what_is_done_meanwhile_ends_with_it(tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"

    def work() -> None:
        write_atomically(started, str(os.getpid()))
        time.sleep(60)
        ended.touch()

    with doing([work]):
        while not started.exists():
            time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert not ended.exists()


def test_preamble_is_used_from_the_third_edit_on(edited: Build) -> None:
    made = edited.layout.work / "preambles/native/cpu/Mine.preamble.h.gch"
    assert uses(edited, *edits(1, 2)) == [False] * 2
    assert not made.exists()
    assert uses(edited, *edits(3, 4, 4, 5)) == [False, True, False, True]  # one is compiled already
    assert made.is_file()


def test_edits_that_are_hours_apart_precompile_nothing(edited: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = (3600.0 * number for number in count())
    monkeypatch.setattr("graft.compile.preambles.time.time", lambda: next(hours))
    assert uses(edited, *edits(1, 2, 3, 4)) == [False] * 4
    assert not [*edited.layout.work.rglob("*.gch")]


def test_another_preamble_or_header_is_compiled_anew(edited: Build) -> None:
    uses(edited, *edits(1, 2, 3, 4))
    assert uses(edited, *edits(4, 5, preamble=f"{PREAMBLE}#define MORE\n")) == [False, True]
    edited.write(HEADERS[1], "#pragma once\nstruct Beside { int more; };\n")
    assert uses(edited, f"{PREAMBLE}#define MORE\n{function(6)}int g() {{ return beside.more; }}\n") == [False]


def test_the_two_that_were_used_last_stay(edited: Build) -> None:
    """Each has up to half a gigabyte."""
    names = ("Mine", "Second", "Third")
    edited.units = [Unit(SOURCE.with_stem(name), Path(f"objects/native/cpu/{name}.o")) for name in names]

    def edit(number: int, *edited_names: str) -> set[str]:
        for name in edited_names:
            edited.write(str(SOURCE.with_stem(name)), PREAMBLE + function(number))
        edited.make()
        return {path.name.partition(".")[0] for path in edited.layout.work.rglob("*.gch")}

    assert edit(1, *names) == set()
    assert edit(2, *names) == set()
    assert edit(3, "Mine") == {"Mine"}
    assert edit(4, "Second") == {"Mine", "Second"}
    assert edit(5, "Mine") == {"Mine", "Second"}
    assert edit(6, "Third") == {"Mine", "Third"}


def test_header_that_a_flag_names_is_in_it(edited: Build) -> None:
    """Compilers use one precompiled header, and none behind another one."""
    edited.write("src/ATen/native/First.h", "#pragma once\nstruct First {};\n")
    (unit,) = edited.units
    edited.units = [replace(unit, flags=("-DA=1", "-include", "First.h", "-DB=2", "-Winvalid-pch", "-Werror"))]
    texts = [f"First first;\nint f() {{ return A * B * {number}; }}\n" for number in (1, 2, 3, 4)]
    uses(edited, *texts)
    text = (edited.layout.work / "build.ninja").read_text().replace("$\n", "")
    assert re.findall(r"-include +(\S+)", text) == ["preambles/native/cpu/Mine.preamble.h"]
    with pytest.raises(BuildError, match=r"/mine/cpu/Mine.cpp:2:18: error: .*typo"):
        uses(edited, f"{texts[0].partition('int')[0]}int f() {{ return typo; }}\n")


def test_preamble_whose_headers_compute_names_is_not_used(edited: Build) -> None:
    """What such a name finds is not known, so it may be something else the next time."""
    header = "#define OPT <opt.h>\n#if __has_include(OPT)\n#endif\n"
    edited.write(HEADERS[1], f"#pragma once\nstruct Beside {{}};\n{header}")
    assert uses(edited, *edits(1, 2, 3, 4, 5)) == [False] * 5


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
def test_file_without_a_guard_is_read_once(edited: Build, tmp_path: Path, name: str, text: str, is_used: bool) -> None:
    """Such as another source, which the preamble and the source itself would include."""
    beside = tmp_path / "elsewhere.h" if name.startswith("/") else edited.layout.work / SOURCE.with_name(name)
    beside.write_text(text)
    include = f'#include "{beside if name.startswith("/") else name}"\n'
    texts = [f"{include}int f() {{ return {number}; }}\n" for number in range(4)]
    assert uses(edited, *texts) == [False, False, False, is_used]


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_message_names_the_folder_s_own_file(edited: Build, times: int) -> None:
    uses(edited, *edits(*range(times)))
    with pytest.raises(BuildError, match=r"/mine/cpu/Mine.cpp:7:10: error: Typo.h: No such file") as caught:
        uses(edited, f'{PREAMBLE}#include "Typo.h"\n{function(4)}')
    assert "preamble" not in str(caught.value)


def test_message_names_it_also_where_a_header_is_gone(edited: Build) -> None:
    """A generated one, like that of a renamed operator."""
    uses(edited, *edits(1, 2, 3, 5))
    (edited.layout.work / HEADERS[3]).unlink()
    error = refused(BuildError, uses, edited, *edits(4), match=r"/mine/cpu/Mine.cpp:6:10: error: ATen/Known.h: No such")
    assert "preamble" not in str(error)


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
