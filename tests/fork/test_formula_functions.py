"""FunctionsManual.cpp of a folder in a source tree: inside PyTorch's file; and what a branch changes there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from graft.core.layout import Layout
from graft.fork.apply import HELPERS_HEADER, HELPERS_SOURCE, apply
from graft.fork.placed import helpers_in
from helpers import write
from small_tree import commit_upstream, of_branch

OPEN = "namespace torch::autograd::generated::details {\n"
CLOSE = "} // namespace torch::autograd::generated::details\n"
HALF = "static Tensor half(const Tensor& x) {\n  return x / 2;\n}\n"
KEPT = "Tensor kept_backward(const Tensor& grad) {\n  return grad;\n}\n"
CALLING = "Tensor calling_backward(const Tensor& grad) {\n  return mine_backward(grad);\n}\n"
TEMPLATE = "template <typename T>\nTensor scaled(const Tensor& x, T by) {\n  return x * by;\n}\n"
INSTANCES = "template Tensor scaled(const Tensor&, double);\n\ntemplate Tensor scaled(const Tensor&, int64_t);\n"


def mine(text: str) -> str:
    return f"Tensor mine_backward(const Tensor& grad) {{\n  return {text};\n}}\n"


def source(*parts: str) -> str:
    body = "\n".join(parts)
    return f"#include <torch/csrc/autograd/FunctionsManual.h>\n\n{OPEN}\nusing at::Tensor;\n\n{body}\n{CLOSE}"


THEIRS = source(HALF, KEPT, mine("half(grad)"), TEMPLATE, INSTANCES, CALLING)
HEADER = f"#pragma once\n#include <ATen/ATen.h>\n\n{OPEN}\nTensor mine_backward(const Tensor& grad);\n\n{CLOSE}"


@pytest.fixture
def upstream(tree: Path, patches: Path) -> Path:
    return commit_upstream(tree, patches, {HELPERS_SOURCE: THEIRS, HELPERS_HEADER: HEADER})


def applied(tree: Path, layout: Layout, native: Path, files: dict[str, str]) -> tuple[str, str]:
    shutil.rmtree(native)
    write(native, files)
    apply(tree, layout)
    return (tree / HELPERS_SOURCE).read_text(), (tree / HELPERS_HEADER).read_text()


def codes(text: str) -> list[str]:
    return ["".join(each.tokens) for each in helpers_in(text)]


def test_a_function_is_replaced_in_its_place(upstream: Path, layout: Layout, native: Path) -> None:
    ours = source("constexpr int kTwo = 2;", HALF, mine("half(grad) * kTwo"))
    text, header = applied(upstream, layout, native, {"FunctionsManual.cpp": f"#include <cmath>\n{ours}"})
    expected = source(HALF, KEPT, "constexpr int kTwo = 2;", mine("half(grad) * kTwo"), TEMPLATE, INSTANCES, CALLING)
    assert codes(text) == codes(expected)
    assert text.startswith("#include <torch/csrc/autograd/FunctionsManual.h>\n#include <cmath>\n")
    assert header == HEADER


def test_a_declaration_takes_the_place_of_pytorch_s(upstream: Path, layout: Layout, native: Path) -> None:
    declared = "Tensor mine_backward(const Tensor& grad, c10::SymInt n);"
    files = {
        "FunctionsManual.cpp": source(mine("grad").replace("grad)", "grad, c10::SymInt n)", 1)),
        "FunctionsManual.h": f"#pragma once\n{OPEN}{declared}\n{CLOSE}",
    }
    text, header = applied(upstream, layout, native, files)
    assert [each for each in codes(header) if "mine_backward" in each] == ["".join(declared.split())]
    assert sum("mine_backward(constTensor&grad" in each for each in codes(text)) == 2  # PyTorch's, and the new one


def test_two_folders(upstream: Path, layout: Layout, native: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    write(second, {"FunctionsManual.cpp": source(KEPT.replace("return grad", "return -grad"))})
    both = replace(layout, natives=(*layout.natives, second))
    text, _ = applied(upstream, both, native, {"FunctionsManual.cpp": source(mine("grad * 3"))})
    assert "return grad * 3;" in text
    assert "return -grad;" in text
    assert "return grad;" not in text


@pytest.mark.parametrize(
    ("after", "taken"),
    [
        (THEIRS.replace("half(grad)", "half(grad) * 3"), [HALF, mine("half(grad) * 3"), CALLING]),
        (THEIRS.replace("x / 2", "x / 3"), [HALF.replace("2", "3"), mine("half(grad)"), CALLING]),
        (THEIRS.replace("x * by", "by * x"), [TEMPLATE.replace("x * by", "by * x"), INSTANCES]),
        (THEIRS.replace("using at::Tensor;", "// A comment.\nusing at::Tensor;"), []),
    ],
    ids=["a function", "a local one", "a template", "nothing"],
)
def test_import_takes_what_changes(
    after: str, taken: list[str], upstream: Path, layout: Layout, tmp_path: Path
) -> None:
    found = of_branch(upstream, tmp_path / "into", {HELPERS_SOURCE: after})
    assert codes(found.get("FunctionsManual.cpp", "")) == (codes(source(*taken)) if taken else [])


def test_import_takes_new_declarations(upstream: Path, layout: Layout, tmp_path: Path) -> None:
    new = "Tensor new_backward(const Tensor& grad);"
    changed = {
        HELPERS_HEADER: HEADER.replace(CLOSE, f"{new}\n\n{CLOSE}"),
        HELPERS_SOURCE: THEIRS.replace(CLOSE, f"{KEPT.replace('kept', 'new')}\n{CLOSE}"),
    }
    found = of_branch(upstream, tmp_path / "into", changed)
    assert codes(found["FunctionsManual.h"]) == ["".join(new.split())]
    assert codes(found["FunctionsManual.cpp"]) == codes(source(KEPT.replace("kept", "new")))
