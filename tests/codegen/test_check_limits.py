"""``make check`` on folders that no one writes on purpose: huge, deeply nested, or written by a program.

Each has a finding or none, in seconds, and never a traceback. What a build refuses, the check refuses.
"""

from __future__ import annotations

import ast
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from corpus import said_of
from graft.check.base import BaseOperators
from graft.core.errors import BuildError
from graft.inputs.merge import merge_with_base
from graft.inputs.native import load_natives

FUNCTIONS, SOURCE, FORMULAS = "native_functions.yaml", "One.cpp", "derivatives.yaml"
ENTRY = "- func: graft_one(Tensor self) -> Tensor\n  dispatch:\n    CompositeExplicitAutograd: graft_one\n"
KERNEL = "namespace at::native {\nTensor graft_one(const Tensor& self) { return self; }\n}\n"
FORMULA = "- name: graft_one(Tensor self) -> Tensor\n  self: {}\n"

# Nine levels of nine aliases each.
BOMB = "".join(
    f"  {key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n" for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)


def errors(folder: Path, known: BaseOperators, files: dict[str, str]) -> list[str]:
    """Return the errors of the check, which takes seconds, or minutes if its work is quadratic."""
    start = time.process_time()
    found = said_of(folder / "native", known, {FUNCTIONS: ENTRY, SOURCE: KERNEL, **files})
    assert time.process_time() - start < 60
    return [line for line in found if ": warning: " not in line]


@pytest.mark.parametrize(
    "files",
    [
        {SOURCE: f"{'namespace a {' * 3000}{'}' * 3000}{KERNEL}"},
        {SOURCE: f"{KERNEL}int x = {'(' * 5000}1{')' * 5000};\n"},
        {SOURCE: "#if 1\n" * 2000 + KERNEL + "#endif\n" * 2000},
        {SOURCE: f"{KERNEL}{'A<' * 3000}int{'>' * 3000} f();\n"},
        {FORMULAS: FORMULA.format(f"{'(' * 3000}grad{')' * 3000}")},
        {f"cpu/Header{number}.h": "#pragma once\n" for number in range(3000)},
        {SOURCE: KERNEL + "".join(f"void f{number}() {{}}\n" for number in range(10_000))},
    ],
    ids=["namespaces", "parentheses", "conditions", "templates", "formula", "headers", "functions"],
)
def test_size_and_depth_are_no_errors(files: dict[str, str], known: BaseOperators, tmp_path: Path) -> None:
    assert errors(tmp_path, known, files) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (FUNCTIONS, f"{ENTRY}  a: &a [x, x, x, x, x, x, x, x, x]\n{BOMB}", ":1: its aliases stand for too many values"),
        (FORMULAS, f"{FORMULA.format('grad')}  a: &a [x, x]\n{BOMB}", ":1: its aliases stand for too many values"),
        ("autocast.yaml", "fp32: &a [*a]\n", ":1: its aliases stand for too many values"),
        (FUNCTIONS, f"{ENTRY}  tags: {'[' * 3000}{']' * 3000}\n", ":4:"),
        ("samples.py", f"x = {'-' * 100_000}1\n", ":1: not Python: nested too deeply"),
        ("python/x.py", f"x = {'-' * 100_000}1\n", ":1: not Python: nested too deeply"),
        ("docs/graft_one.rst", "One.\nTwo\0.\n", ":2:4: NUL character"),
        (FUNCTIONS, f"\ufeff{ENTRY}", ":1:1: byte order mark"),
        (FORMULAS, f"\ufeff{FORMULA.format('grad')}", ":1:1: byte order mark"),
        (FUNCTIONS, f"---\n{ENTRY}", ":1: the list is in brackets, or a document of its own"),
        (FUNCTIONS, f"%YAML 1.1\n---\n{ENTRY}", ":1: the list is in brackets, or a document of its own"),
        (FUNCTIONS, f"{ENTRY}...\n", ":1: the list is in brackets, or a document of its own"),
        (
            FUNCTIONS,
            "[{func: 'graft_one(Tensor self) -> Tensor', dispatch: {CPU: graft_one}}]\n",
            ":1: the list is in brackets, or a document",
        ),
    ],
)
def test_error_is_named(name: str, text: str, expected: str, known: BaseOperators, tmp_path: Path) -> None:
    (error,) = errors(tmp_path, known, {name: text})
    assert error.startswith(f"{name}{expected}")


@pytest.mark.parametrize("raised", [MemoryError, RecursionError, RecursionError("Stack overflow (used 8 MB)")])
def test_depth_is_named_whatever_python_says(
    raised: type[Exception] | Exception, known: BaseOperators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases of Python differ in what is too deep for them, and in how they say it."""
    monkeypatch.setattr(ast, "parse", Mock(side_effect=raised))
    (error,) = errors(tmp_path, known, {"samples.py": "x = 1\n"})
    assert error.startswith("samples.py:1: not Python: nested too deeply")


@pytest.mark.parametrize("name", [FUNCTIONS, FORMULAS])
def test_thousands_of_duplicates_take_seconds(name: str, known: BaseOperators, tmp_path: Path) -> None:
    entry = ENTRY if name == FUNCTIONS else FORMULA.format("grad")
    assert len(errors(tmp_path, known, {name: entry * 5000})) == 4999


def test_what_a_build_refuses_the_check_refuses(base: Path, known: BaseOperators, tmp_path: Path) -> None:
    """Lists that cannot be between others."""
    for text in (f"---\n{ENTRY}", f"{ENTRY}...\n", f"\ufeff{ENTRY}", f"{ENTRY}--- # end\n"):
        assert errors(tmp_path, known, {FUNCTIONS: text})
        with pytest.raises(BuildError):
            merge_with_base(load_natives([tmp_path / "native"]), base, tmp_path / "merged")


def test_headers_of_this_machine_alone_are_named(known: BaseOperators, tmp_path: Path) -> None:
    text = '#include "/home/me/x.h"\n#include <../y.h>\n#include "../Two.h"\n'
    lines = said_of(tmp_path, known, {FUNCTIONS: ENTRY, SOURCE: KERNEL, "cpu/One.h": text, "cpu/More.h": text})
    assert [line.partition(" is outside")[0] for line in lines if " is outside" in line] == [
        f"cpu/{name}.h:1: warning: /home/me/x.h" for name in ("More", "One")
    ]
