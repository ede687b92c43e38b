"""Which changes of PyTorch's own generated headers require recompiling the files that include them."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.fork.gains import only_gains

BODY = "ATen/core/TensorBody.h"
NODES = "torch/csrc/autograd/generated/Functions.h"
REDISPATCH = "ATen/RedispatchFunctions.h"
HEADERS = [
    BODY,
    NODES,
    REDISPATCH,
    "ATen/Functions.h",
    "ATen/MethodOperators.h",
    "ATen/NativeFunctions.h",
    "ATen/NativeMetaFunctions.h",
    "ATen/VmapGeneratedPlumbing.h",
    "torch/csrc/autograd/generated/variable_factories.h",
]

METHOD = "  at::Tensor add(const at::Tensor & other, const at::Scalar & alpha=1) const;\n"
NODE = """#ifdef _WIN32
struct AcosBackward0 : public TraceableFunction {
  TORCH_API AcosBackward0() = default;
#else
struct TORCH_API AcosBackward0 : public TraceableFunction {
#endif
"""
MEMBER = "};\n#ifdef _WIN32\nstruct AcoshBackward0"


def read(base: Path, name: str) -> str:
    return (base / "torch/include" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", HEADERS)
def test_includes_are_gained(base: Path, name: str) -> None:
    text = read(base, name)
    first = text.index("#include <")
    added = f"{text[:first]}#include <ATen/ops/mine.h>\n{text[first:]}"
    assert only_gains(text, text)
    assert only_gains(text, added)
    assert not only_gains(added, text)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (BODY, METHOD, METHOD + METHOD.replace("add", "mine").replace("alpha=1", "alpha={}, int64_t n=1")),
        (NODES, NODE, NODE.replace("Acos", "Mine") + "  SavedVariable self_;\n};\n" + NODE),
        (NODES, NODE, "inline Tensor mine() {\n  return {};\n}\n" + NODE),
    ],
)
def test_declarations_are_gained(base: Path, name: str, old: str, new: str) -> None:
    text = read(base, name)
    assert text.count(old) == 1
    assert only_gains(text, text.replace(old, new))
    assert not only_gains(text.replace(old, new), text)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (BODY, METHOD, METHOD.replace("alpha=1", "alpha=2")),
        (BODY, METHOD, METHOD.replace("  at", "  virtual at") + METHOD),
        (BODY, METHOD, METHOD + "  int64_t mine;\n"),
        (BODY, METHOD, METHOD + " protected:\n"),
        (BODY, METHOD, METHOD.replace("add(", "mine(")),
        (BODY, "class TORCH_API Tensor:", "class Tensor:"),
        (NODES, NODE, NODE.replace("public TraceableFunction", "public Node")),
        (NODES, NODE, NODE.replace("TORCH_API AcosBackward0 :", "AcosBackward0 :")),
        (NODES, MEMBER, "  int64_t mine;\n" + MEMBER),
        (REDISPATCH, "at::_ops::add_Tensor::redispatch", "at::_ops::add_Tensor::call"),
    ],
)
def test_changes_are_told(base: Path, name: str, old: str, new: str) -> None:
    text = read(base, name)
    assert old in text
    assert not only_gains(text, text.replace(old, new))


def test_methods_that_change_places_are_told(base: Path) -> None:
    text = read(base, BODY)
    before, _, after = text.partition(METHOD)
    following, end, rest = after.partition(";\n")
    assert not only_gains(text, f"{before}{following}{end}{METHOD}{rest}")
