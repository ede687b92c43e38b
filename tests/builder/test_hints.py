"""Hints for compiler errors: each row of the table is tested with an example and the real g++."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from graft.compile.diagnostics import diagnostics
from graft.compile.hints import hint_for, hints
from graft.compile.messages import digest
from graft.core.architecture import ARCHITECTURES
from graft.inputs.native import load_natives
from helpers import of_the_base_wheel, program, write

_FLAGS = ("-std=c++20", "-fsyntax-only", "-DAT_PER_OPERATOR_HEADERS", "-DCPU_CAPABILITY=AVX2", "-DCPU_CAPABILITY_AVX2")
_FLAGS += ("-DHAVE_AVX2_CPU_DEFINITION", "-DHAVE_AVX512_CPU_DEFINITION")
_INCLUDE = re.compile(r"^#.*\n", re.M)


@dataclass(frozen=True)
class Example:
    """A row of hints.yaml, which describes the fields."""

    hints: list[str]
    example: str
    fixed: str


def examples() -> list[Example]:
    found = []
    for row in yaml.safe_load(Path(__file__).with_name("hints.yaml").read_text()):
        example, fixed = (complete(row.get(key, "")) for key in ("example", "fixed"))
        headers = "".join(f"{line}\n" for line in re.findall(r"`(#include <.*?>)`", "\n".join(row["hints"])))
        found.append(Example(row["hints"], example, fixed or headers + example))
    return found


def complete(code: str) -> str:
    """Put the header before an example that includes none."""
    return code if not code or "#include" in code else f"#include <ATen/core/Tensor.h>\n{code.rstrip()}\n"


def compiled(folder: Path, source: Path, *flags: str) -> list[str]:
    """Return the messages of g++ about a source; empty if it compiles."""
    include = of_the_base_wheel("GRAFT_BASE_FOLDER") / "tree/torch/include"
    command = ["g++", *_FLAGS, *ARCHITECTURES["x86_64"].capabilities["AVX2"], f"-I{include}", *flags, str(source)]
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


def groups() -> list[object]:
    """Examples that can be compiled together, as parameters of a test: those with the same includes, followed by code.
    The largest group comes first, and is the one that is compiled by day.
    """
    found: dict[str, list[tuple[int, Example]]] = {}
    for number, each in enumerate(examples()):
        heads = _INCLUDE.findall(each.example)
        is_alone = not _INCLUDE.sub("", each.example).strip()
        found.setdefault(f"{heads}{number if is_alone else ''}", []).append((number, each))
    first, *others = sorted(found.values(), key=len, reverse=True)
    return [first, *(pytest.param(group, marks=pytest.mark.slow) for group in others)]


@pytest.mark.parametrize("group", groups(), ids=lambda group: f"rows {', '.join(str(number) for number, _ in group)}")
def test_each_example_gets_its_hints(group: list[tuple[int, Example]], tmp_path: Path) -> None:
    native = tmp_path / "native"
    native.mkdir()
    includes = [of_the_base_wheel("GRAFT_BASE_FOLDER") / "tree/torch/include"]
    wrong = together(native, "wrong.cpp", ((f"row{number}.cpp", each.example) for number, each in group))
    source = wrong if len(group) > 1 else native / f"row{group[0][0]}.cpp"
    errors = diagnostics(compiled(tmp_path, source), native)
    for number, each in group:
        own = [e for e in errors if e.user and e.user[0] == str(native / f"row{number}.cpp")]
        assert own, f"row {number} gives no error"
        lines = each.example.splitlines()
        # The lines of an error: the compiler's and the user's.
        said = [hint_for(e.message, " ".join([*e.excerpt[:1], lines[e.user[1] - 1]]), includes) for e in own if e.user]
        # Errors that follow from the first need no hint, but must not match another row of the table.
        assert said[0], f"row {number}: {own[0].message}"
        assert {text for text in said if text} == set(each.hints), f"row {number}: {[e.message for e in own]}"


def test_remedies_compile(tmp_path: Path) -> None:
    """In one source; each was tried alone when the table was written."""
    native = tmp_path / "native"
    native.mkdir()
    fixed = together(native, "fixed.cpp", ((f"fixed{n}.cpp", each.fixed) for n, each in enumerate(examples())))
    assert compiled(tmp_path, fixed) == []


def test_rows_have_examples_but_for_two() -> None:
    said = [text for each in examples() for text in each.hints]
    without = []
    for row in hints():
        header = f"add `#include <{row.include}>`{', ' * bool(row.write)}" if row.include else ""
        pattern = re.escape(f"{header}{row.write}").replace(r"\{0\}", ".*")
        without += [] if any(re.fullmatch(pattern, text) for text in said) else [row.write]
    assert [text.split()[0] for text in without] == ["include", "the"]
    assert len(hints()) > 30


def test_compiler_that_is_killed_is_a_lack_of_memory(tmp_path: Path) -> None:
    program(tmp_path / "cc1plus", "kill -9 $$")
    command = ["g++", f"-B{tmp_path}", "-c", write(tmp_path, {"A.cpp": ""}) / "A.cpp"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    lines = digest(diagnostics(output.splitlines(), tmp_path), load_natives([tmp_path]), [])
    assert any("hint: the machine ran out of memory: build with JOBS=1" in line for line in lines)
