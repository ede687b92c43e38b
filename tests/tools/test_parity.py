"""Comparing generated C++ wherever in the sources it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.source import parity
from scripts.source.definitions import definitions, naming
from scripts.source.names import autograd_node, names_in
from scripts.source.parity import compare_headers

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


def test_longer_names_of_others_do_not_count() -> None:
    found = {"f(conv2d)", "g(structured_conv_out)", "h(conv, conv2d)", "i()"}
    assert naming(found, ["conv"], {"conv2d", "add"}) == {"g(structured_conv_out)", "h(conv, conv2d)"}


def test_names_of_operators_and_their_nodes() -> None:
    yaml = "- func: mine.out(Tensor self) -> Tensor\n- func: aten::mine_(Tensor self) -> Tensor\n- func: a_b() -> ()\n"
    assert names_in(yaml) == {"mine", "a_b"}
    assert autograd_node("a_bC") == "ABCBackward"


def test_headers_that_differ_or_are_missing_are_named(tmp_path: Path) -> None:
    ops = tmp_path / "build/aten/src/ATen/ops"
    ops.mkdir(parents=True)
    for name in ("mine.h", "mine_ops.h", "mine_cpu_dispatch.h", "mine_more_ops.h"):
        (ops / name).write_text(name)
    wheel = Path("torch/include/ATen/ops")
    headers = {wheel / "mine.h": "mine.h", wheel / "mine_ops.h": "another", wheel / "mine_meta.h": "meta"}
    faults, alike = compare_headers(tmp_path, {**headers, Path("torch/version.py"): ""}, ["mine"])
    assert alike == 1
    assert faults == [
        f"{ops}/mine_ops.h: differs from a graft",
        f"{ops}/mine_meta.h: only a graft has this header",
        f"{ops}/mine_cpu_dispatch.h: a graft has no such header",
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("bool is_custom_op(x) { }", True), ("bool f(is_custom_op(x));", False)]
)
def test_differences_on_purpose_are_known_by_their_beginning(text: str, expected: bool) -> None:
    assert parity.on_purpose(text) == expected
