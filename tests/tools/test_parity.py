"""Comparing generated C++ regardless of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graft.core.errors import SourceError
from graft.fork import parity
from graft.fork.configure import Configured
from graft.fork.definitions import definitions
from graft.fork.ninja import objects_of
from graft.fork.parity import changed_sources, compare_headers

SHARD = """
// a comment { of one brace
#include <ATen/Tensor.h>
#define TWO(x) \\
  { x }
namespace at {
namespace {
at::Tensor wrapper_CPU_mine(const at::Tensor & self) {
  if (self.defined()) { return self; }
  return at::native::mine(self, "}");
}
struct structured_mine final : public at::native::structured_mine {
    void f() { }
};
}
TORCH_LIBRARY_IMPL(aten, CPU, m) {
    m.impl("mine",
TORCH_FN(wrapper_CPU_mine));
    m.impl("other", TORCH_FN(wrapper_CPU_other));
}
} // namespace at
"""


def test_definitions_are_told_apart_without_their_layout() -> None:
    assert definitions(SHARD) == {
        "at::Tensor wrapper_CPU_mine(const at::Tensor & self) { if (self.defined()) { return self; } "
        'return at::native::mine(self, "}"); }',
        "struct structured_mine final : public at::native::structured_mine { void f() { } };",
        'TORCH_LIBRARY_IMPL(aten, CPU, m) m.impl("mine", TORCH_FN(wrapper_CPU_mine));',
        'TORCH_LIBRARY_IMPL(aten, CPU, m) m.impl("other", TORCH_FN(wrapper_CPU_other));',
    }


def test_macros_without_a_semicolon_end_where_they_end() -> None:
    text = """TORCH_LIBRARY_IMPL(aten, Autocast, m) {
  KERNEL_CPU(mine, fp32)
  KERNEL_CPU(other, fp32)
}
static PyObject* f(PyObject* self) {
  if (self) {
    HANDLE_TH_ERRORS
    return nullptr;
    END_HANDLE_TH_ERRORS
  }
  return self;
}
static int g() {
  return 1;
}
"""
    assert definitions(text) == {
        "TORCH_LIBRARY_IMPL(aten, Autocast, m) KERNEL_CPU(mine, fp32)",
        "TORCH_LIBRARY_IMPL(aten, Autocast, m) KERNEL_CPU(other, fp32)",
        "static PyObject* f(PyObject* self) { if (self) { HANDLE_TH_ERRORS return nullptr; END_HANDLE_TH_ERRORS } "
        "return self; }",
        "static int g() { return 1; }",
    }


def test_schemas_are_the_same_whatever_the_numbers_of_their_tags() -> None:
    tags = "const std::vector<at::Tag> tags_{} = {{at::Tag::core}};"
    schema = 'm.def("mine(Tensor self) -> Tensor", tags_{});'
    upstream = f"TORCH_LIBRARY(aten, m) {{ {tags.format(7)} {schema.format(7)} }}"
    graft = f"TORCH_LIBRARY_FRAGMENT(aten, m) {{ {tags.format(0)} {schema.format(0)} }}"
    expected = 'TORCH_LIBRARY(aten, m) m.def("mine(Tensor self) -> Tensor", {at::Tag::core});'
    assert expected in definitions(upstream) & definitions(graft)
    assert expected not in definitions(upstream.replace("Tag::core", "Tag::pointwise"))


def test_tables_of_methods_and_nodes_are_taken_apart() -> None:
    table = 'static PyMethodDef f[] = {\n  {"mine", g, METH_VARARGS, nullptr},\n  {"other", h, 0, nullptr},\n};'
    assert definitions(table) == {'{"mine", g, METH_VARARGS, nullptr}', '{"other", h, 0, nullptr}'}
    nodes = (
        "void init_1(PyObject* m) {\n static PyTypeObject MineBackward0Class;\n"
        ' addClass<MineBackward0>(m, MineBackward0Class, "MineBackward0");\n}'
    )
    assert definitions(nodes) == {
        'static PyTypeObject MineBackward0Class; addClass<MineBackward0>(m, MineBackward0Class, "MineBackward0");'
    }


def test_headers_that_differ_or_are_missing_are_named() -> None:
    old = {"same.h": "same", "more.h": "one"}
    theirs = {**old, "more.h": "one two", "mine.h": "mine", "mine_ops.h": "ops", "aten_interned_strings.h": "numbers"}
    ours = {"more.h": "one two", "mine.h": "another", "mine_meta.h": "meta"}
    faults, alike = compare_headers(theirs, ours, old)
    assert alike == 1
    assert faults == [
        "mine.h: differs from a graft",
        "mine_meta.h: only a graft has it",
        "mine_ops.h: only the tree has it",
    ]


def test_sources_that_upstream_gives_as_well_are_left_out(tmp_path: Path) -> None:
    folder = "build/aten/src/ATen"
    files = {"Operators_0.cpp": "old", "Operators_1.cpp": "new", "OperatorsEverything.cpp": "new", "Mine.cpp": "new"}
    files |= {"RegisterCUDA.cpp": "new", "RegisterCUDA_0.cpp": "new"}
    for tree, texts in {"tree": files, "upstream": {"Operators_0.cpp": "old", "Operators_1.cpp": "old"}}.items():
        (tmp_path / tree / folder).mkdir(parents=True)
        for name, text in texts.items():
            (tmp_path / tree / folder / name).write_text(text)
    changed = changed_sources(tmp_path / "tree", tmp_path / "upstream")
    assert changed == [f"{folder}/Mine.cpp", f"{folder}/Operators_1.cpp"]


def test_fork_s_own_objects_are_found_by_what_they_are_compiled_from(tmp_path: Path) -> None:
    files = {
        "aten/src/ATen/native/Mine.cpp": "mine.o",
        "build/aten/src/ATen/native/cpu/MineKernel.cpp.AVX2.cpp": "avx2.o",
        "build/aten/src/ATen/Operators_1.cpp": "operators.o",
        "build/aten/src/ATen/Operators_2.cpp": "others.o",
        "aten/src/ATen/native/Add.cpp": "add.o",
    }
    commands = [{"file": str(tmp_path / name), "output": output} for name, output in files.items()]
    (tmp_path / "build").mkdir()
    (tmp_path / "build/compile_commands.json").write_text(json.dumps(commands))
    sources = [f"aten/src/ATen/native/{name}" for name in ("Mine.cpp", "cpu/MineKernel.cpp", "Mine.h")]
    found = objects_of(Configured(tmp_path, {}, sources, tmp_path), ["build/aten/src/ATen/Operators_1.cpp"])
    assert found == ["mine.o", "avx2.o", "operators.o"]
    with pytest.raises(SourceError, match="none of the fork's sources"):
        objects_of(Configured(tmp_path, {}, ["aten/src/ATen/native/Other.cpp"], tmp_path), [])


@pytest.mark.parametrize(
    ("text", "expected"), [("bool is_custom_op(x) { }", True), ("bool f(is_custom_op(x));", False)]
)
def test_differences_on_purpose_are_known_by_their_beginning(text: str, expected: bool) -> None:
    assert parity.on_purpose(text) == expected
