"""Calls for which C++ finds another function than the author means: g++ and ``make check`` agree on each line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from corpus import said_of
from graft.check import Findings
from graft.check.base import BaseOperators
from graft.check.lookup import check_lookup
from graft.cpp.sources import read_text

LOOKUP = Path(__file__).with_name("lookup")
OPERATORS = "acos add.Tensor asin atan cat cosh cumsum digamma erf erfc exp eye log2 mm.out mul.Tensor neg relu sinh"
OPERATORS += " softmax.int stack sum.dim_IntList tan tril triu"


TENSORS = "auto tensors(const Tensor& x) { auto y = x.neg() * 2; return abs(x) + abs(y - x) + abs(x[0]); }"


def found_in(folder: Path, known: BaseOperators, text: str) -> dict[int, str]:
    """Return what check says of the calls in a source, by line."""
    findings, functions = Findings(), [known.function(name) for name in OPERATORS.split()]
    check_lookup(functions, [], [read_text(folder / "Calls.cpp", text)], [], known.tree, findings)
    return {each.line: "warning" if each.is_warning else "error" for each in findings.found}


def compiled(folder: Path, base: Path, text: str) -> set[int]:
    """Return the lines of a source for which g++ reports an error, or that a number loses a part."""
    (folder / "Compiled.cpp").write_text(text)
    flags = ["-std=c++20", "-fsyntax-only", "-Wconversion", "-DAT_PER_OPERATOR_HEADERS"]
    command = ["g++", *flags, "-isystem", str(base / "torch/include"), "Compiled.cpp"]
    done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    return {int(line) for line in re.findall(r"^Compiled\.cpp:(\d+):\d+: (?:error|warning):", done.stderr, re.M)}


def marks_in(text: str) -> dict[int, str]:
    """Return the comments in a source, by line."""
    return {n: line.rpartition("// ")[2] for n, line in enumerate(text.splitlines(), 1) if "  // " in line}


def test_check_says_of_each_call_what_the_compiler_finds(base: Path, known: BaseOperators, tmp_path: Path) -> None:
    text = (LOOKUP / "Calls.cpp").read_text()
    marks = marks_in(text)
    assert compiled(tmp_path, base, text) == {n for n, mark in marks.items() if mark != "warning"}
    assert found_in(tmp_path, known, text) == {n: mark.removeprefix("ambiguous: ") for n, mark in marks.items()}


@pytest.mark.parametrize(
    ("headers", "is_found"),
    [
        ("#include <ATen/ATen.h>", "error"),
        ("#include <torch/extension.h>", "error"),
        ("#include <ATen/ops/digamma.h>", "error"),
        ("#ifndef AT_PER_OPERATOR_HEADERS\n#include <ATen/Functions.h>\n#endif", ""),
        ("#ifdef AT_PER_OPERATOR_HEADERS\n#include <ATen/Functions.h>\n#endif", "error"),
        ("#ifdef OTHER\n#include <ATen/Functions.h>\n#endif", "warning"),
        ("#include <ATen/ops/digamma_native.h>\n#include <ATen/Parallel.h>\n#include <torch/library.h>", ""),
    ],
)
def test_calls_are_right_where_no_header_has_the_operator(
    known: BaseOperators, tmp_path: Path, headers: str, is_found: str
) -> None:
    text = (
        "namespace mylib {\nTensor digamma(const Tensor& x);\nTensor call(const Tensor& x) { return digamma(x); }\n}\n"
    )
    assert [*found_in(tmp_path, known, f"{headers}\n{text}").values()] == [is_found] * bool(is_found)


@pytest.mark.parametrize("header", ["", "ATen/ops/abs.h", "ATen/ops/abs_native.h"])
def test_absolute_value_of_a_number_is_std_abs(base: Path, known: BaseOperators, tmp_path: Path, header: str) -> None:
    included = f"#include <{header}>\n#include <ATen/TensorOperators.h>" if header else ""
    text = (LOOKUP / "Absolutes.cpp").read_text().replace("\n// HEADER\n", f"\n{included}\n")
    text = text.replace("// TENSORS\n", f"{TENSORS * bool(header)}\n")
    marks = {n: mark.split()[bool(header) :][:1] for n, mark in marks_in(text).items()}
    expected = {n: mark[0] for n, mark in marks.items() if mark and mark[0] != "-"}
    unknown = {n for n, line in enumerate(text.splitlines(), 1) if "abs(*p)" in line}
    assert compiled(tmp_path, base, text) == {*expected} | unknown, "a type that the text does not say"
    assert found_in(tmp_path, known, text) == expected


FOLDER = yaml.safe_load((LOOKUP / "folder.yaml").read_text())


def test_operators_and_kernels_of_a_folder_are_found_beside_its_functions(known: BaseOperators, tmp_path: Path) -> None:
    lines = [line for line in said_of(tmp_path, known, FOLDER) if "namespace at," in line]
    why = "C++ looks for functions of tensors in namespace at, too, so it finds at::top_heads and"
    todo = "(...)` for the function, `at::top_heads(...)` for the operator [ambiguous-call]"
    assert lines == [
        f"mylib.cpp:4: `top_heads(x, 1)` is ambiguous: {why} mylib::top_heads; write `mylib::top_heads{todo}",
        f"ops.cpp:5: `top_heads(x.flip(0), 1)` is ambiguous: {why} at::native::top_heads; write `at::native::top_heads"
        + todo,
        f"tails.cpp:4: `top_heads(x, 1)` is ambiguous: {why} at::native::top_heads; write `at::native::top_heads{todo}",
    ]


def test_overload_that_may_be_better_makes_a_warning(known: BaseOperators, tmp_path: Path) -> None:
    entries = FOLDER["native_functions.yaml"]
    more = entries.split("- func: top_tails")[0].replace("top_heads(", "top_heads.scalar(").replace("int k", "Scalar k")
    own = FOLDER["mylib.h"].replace("int64_t k", "const at::Scalar& k")
    call = (
        '#include "mylib.h"\nnamespace mylib {\nat::Tensor call(const at::Tensor& x) { return top_heads(x, 1); }\n}\n'
    )
    texts = {"native_functions.yaml": entries + more, "mylib.h": own, "mylib.cpp": call}
    lines = [line for line in said_of(tmp_path, known, texts) if "namespace at," in line]
    assert [line.partition(": C++")[0] for line in lines] == [
        "mylib.cpp:3: warning: `top_heads(x, 1)` may call the operator at::top_heads"
    ]


def test_operator_without_a_function_is_not_found(known: BaseOperators, tmp_path: Path) -> None:
    entries = FOLDER["native_functions.yaml"].replace("Tensor x, int", "Tensor self, int")
    method = entries.replace("  dispatch", "  variants: method\n  dispatch", 1)
    lines = said_of(tmp_path, known, {**FOLDER, "native_functions.yaml": method})
    assert not [line for line in lines if "namespace at," in line]
