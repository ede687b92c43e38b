"""Messages about undefined and repeated symbols name the files and entries of the native folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.compile.link_messages import explain_repeated, explain_undefined
from graft.inputs.native import load_natives
from helpers import beside

CASES = beside(__file__)

FUNCTIONS = CASES["functions"]


@pytest.fixture
def native(tmp_path: Path) -> Path:
    (tmp_path / "native_functions.yaml").write_text(FUNCTIONS)
    return tmp_path


@pytest.mark.parametrize(("symbol", "line", "operator"), CASES["asked"])
def test_undefined_symbol_names_the_entry_that_asks_for_it(native: Path, symbol: str, line: int, operator: str) -> None:
    assert explain_undefined({symbol: ["library_0.cpp", "library_1.cpp"]}, load_natives([native])) == (
        f"{native}/native_functions.yaml:{line}: no file defines {symbol}, the kernel of {operator}; "
        "define it in a .cpp file with exactly these parameters"
    )


@pytest.mark.parametrize(
    "symbol",
    ["helper(int)", "mine::soft_sum(int)", "mine::soft_clip_cpu(int)", "at::soft_clip_cpu(int)", "soft_max_cpu(int)"],
)
def test_undefined_symbol_that_no_entry_asks_for_names_its_caller(native: Path, symbol: str) -> None:
    """Also where an operator has the name of the function."""
    said = explain_undefined({symbol: ["Soft.cpp"]}, load_natives([native]))
    assert said.startswith(f"Soft.cpp: calls {symbol}, which is not defined; define it")


MINE = CASES["mine"]


def test_undefined_symbol_is_told_at_the_line_that_calls_it(native: Path) -> None:
    (native / "Mine.cpp").write_text(MINE)
    callers = {"at::native::helper(int)": [f"{native}/Mine.cpp"]}
    called = f"{native}/Mine.cpp:6: calls at::native::helper(int), which is not defined; "
    assert (
        explain_undefined(callers, load_natives([native]))
        == called + "define it in a .cpp file of the folder, or do not call it"
    )
    (native / "Other.cpp").write_text("int helper(long x) { return 0; }\n")
    assert explain_undefined(callers, load_natives([native])).startswith(
        f"{called}{native}/Other.cpp:1 defines `int helper(long)`: declare"
    )


def test_stub_of_the_folder_has_no_kernel_of_pytorchs(native: Path) -> None:
    text = "namespace at::native {\nDEFINE_DISPATCH(own_stub);\nvoid f() { stock::of(own_stub)(kCPU); }\n}\n"
    (native / "Mine.cpp").write_text(text)
    stub = "at::native::DispatchStub<void (*)(), at::native::Stock<at::native::own_stub_DECLARE_DISPATCH_type> >"
    callers = {f"{stub}::{capability}": [f"{native}/Mine.cpp"] for capability in ("AVX2", "DEFAULT")}
    said = f"{native}/Mine.cpp:3: calls stock::of(own_stub), but PyTorch has no such stub; write `own_stub(...)`"
    assert explain_undefined(callers, load_natives([native])) == said


REPEATED = {"at::native::twice(int)": ["Mine.cpp", "A.cpp"]}


def test_symbol_that_is_there_twice_is_told_at_both_lines(native: Path) -> None:
    (native / "Mine.cpp").write_text(MINE)
    (native / "A.cpp").write_text(
        "namespace at::native {\nint twice(int, int) { return 2; }\nint twice(int) { return 1; }\n}\n"
    )
    assert explain_repeated(REPEATED, load_natives([native])) == (
        f"{native}/Mine.cpp:4: defines at::native::twice(int), which {native}/A.cpp:3 defines, too; "
        "give one another name, or write `static` before both"
    )


def test_function_of_a_header_that_is_there_twice_is_told_at_its_line(native: Path) -> None:
    (native / "Twice.h").write_text("namespace at::native {\nint twice(int x) { return x; }\n}\n")
    assert explain_repeated(REPEATED, load_natives([native])) == (
        f"{native}/Twice.h:2: defines at::native::twice(int) in a header, included by Mine.cpp and A.cpp; "
        "write `inline` before it"
    )
