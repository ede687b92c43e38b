"""Hints for compiler errors: the table of hints, each row tested with the real g++."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from graft.compile.diagnostics import Diagnostic, diagnostics
from graft.compile.messages import Hint, digest, hint_for, hints
from graft.inputs.toolchain import CPU_CAPABILITIES
from helpers import of_the_base_wheel

_FLAGS = ("-std=c++20", "-fsyntax-only", "-DAT_PER_OPERATOR_HEADERS", "-DCPU_CAPABILITY=AVX2", "-DCPU_CAPABILITY_AVX2")
_FLAGS += ("-DHAVE_AVX2_CPU_DEFINITION", "-DHAVE_AVX512_CPU_DEFINITION")
_INCLUDE = re.compile(r"^#.*\n", re.M)


def compiled(folder: Path, source: Path, *flags: str) -> list[str]:
    """Return the messages of g++ about a source; empty if it compiles."""
    include = of_the_base_wheel("GRAFT_BASE") / "tree/torch/include"
    command = ["g++", *_FLAGS, *CPU_CAPABILITIES["AVX2"], f"-I{include}", *flags, str(source)]
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert bool(done.stderr) == bool(done.returncode), done.stderr
    return done.stderr.splitlines(keepends=True)


def together(folder: Path, name: str, texts: Iterable[tuple[str, str]]) -> Path:
    """One source made from several: includes first; errors name each by its own file in ``folder``."""
    heads: dict[str, None] = {}
    bodies = []
    for file, text in texts:
        (folder / file).write_text(text)
        heads.update(dict.fromkeys(_INCLUDE.findall(text)))
        body = _INCLUDE.sub("", text)
        bodies.append(f'#line {len(_INCLUDE.findall(text)) + 1} "{folder / file}"\n{body}')
    source = folder.parent / name
    source.write_text("".join([*heads, *bodies]))
    return source


def groups() -> list[list[tuple[int, Hint]]]:
    """Rows that can be compiled together: those with the same includes, followed by code."""
    found: dict[str, list[tuple[int, Hint]]] = {}
    seen = set()
    for number, hint in enumerate(hints()):
        if hint.example and hint.example not in seen:
            seen.add(hint.example)
            heads = _INCLUDE.findall(hint.example)
            is_alone = not _INCLUDE.sub("", hint.example).strip()
            found.setdefault(f"{heads}{number if is_alone else ''}", []).append((number, hint))
    return list(found.values())


def hints_of(row: Hint) -> list[Hint]:
    """Return the row, and the one that it makes for a macro."""
    return [hint for hint in hints() if hint.example == row.example]


def text_at(error: Diagnostic, example: str) -> str:
    """The source lines of an error: the compiler's and the user's."""
    assert error.user
    return " ".join([*error.excerpt[:1], example.splitlines()[error.user[1] - 1]])


@pytest.mark.parametrize("group", groups(), ids=lambda group: f"rows {', '.join(str(number) for number, _ in group)}")
def test_each_row_fits_what_the_compiler_says(group: list[tuple[int, Hint]], tmp_path: Path) -> None:
    native = tmp_path / "native"
    native.mkdir()
    includes = [of_the_base_wheel("GRAFT_BASE") / "tree/torch/include"]
    wrong = together(native, "wrong.cpp", ((f"row{number}.cpp", hint.example) for number, hint in group))
    source = wrong if len(group) > 1 else native / f"row{group[0][0]}.cpp"
    errors = diagnostics(compiled(tmp_path, source), native)
    for number, row in group:
        own = [e for e in errors if e.user and e.user[0] == str(native / f"row{number}.cpp")]
        assert own, f"row {number} gives no error"
        said = [hint_for(e.message, text_at(e, row.example), includes) for e in own]
        of_row = [h.text(e.message, text_at(e, row.example), includes) for h in hints_of(row) for e in own]
        # Errors that follow from the first need no hint, but must not match another row.
        assert said[0], f"row {number}: {own[0].message}"
        assert {text for text in said if text} <= set(of_row), f"row {number}: {[e.message for e in own]}"


def test_remedies_compile(tmp_path: Path) -> None:
    """In one source; each was tried alone when the table was written."""
    native = tmp_path / "native"
    native.mkdir()
    texts = dict.fromkeys(hint.fixed for hint in hints() if hint.example)
    fixed = together(native, "fixed.cpp", ((f"fixed{number}.cpp", text) for number, text in enumerate(texts)))
    assert compiled(tmp_path, fixed) == []


def test_rows_have_examples_but_for_one() -> None:
    assert [hint.write for hint in hints() if not hint.example and hint.include] == []
    assert len(hints()) > 30


def test_compiler_that_is_killed_is_a_lack_of_memory(tmp_path: Path) -> None:
    (tmp_path / "cc1plus").write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / "cc1plus").chmod(0o755)
    (tmp_path / "A.cpp").write_text("")
    output = subprocess.run(
        ["g++", f"-B{tmp_path}", "-c", "A.cpp"], cwd=tmp_path, capture_output=True, text=True, check=False
    ).stderr
    lines = digest(diagnostics(output.splitlines(), tmp_path), tmp_path, [])
    assert any("hint: the machine ran out of memory: build with JOBS=1" in line for line in lines)
