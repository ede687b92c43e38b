"""Parts of PyTorch that a folder replaces, in a source tree: files and entries take the place of PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from graft.core.errors import UsageError
from graft.core.layout import Layout
from graft.fork.apply import NATIVE, apply
from helpers import git, write
from small_tree import commit_upstream

ADD = """namespace at::native {
Tensor add_cpu(const Tensor& self) {
  return self;
}
}
"""
STUB = """namespace at::native {
namespace {
void kernel() {}
}
REGISTER_DISPATCH(add_stub, &kernel)
}
"""
ENTRY = "- func: add(Tensor self) -> Tensor\n  dispatch:\n    CPU: add_cpu\n  replace: True\n"
TREE = {
    f"{NATIVE}/native_functions.yaml": "- func: add(Tensor self) -> Tensor\n  tags: core\n  dispatch:\n"
    "    CPU: add_cpu\n    CUDA: add_cuda\n\n- func: mul(Tensor self) -> Tensor\n",
    f"{NATIVE}/Add.cpp": ADD,
    f"{NATIVE}/cpu/AddKernel.cpp": STUB,
}


@pytest.fixture
def upstream(tree: Path, patches: Path) -> Path:
    return commit_upstream(tree, patches, TREE)


def folder(native: Path, files: dict[str, str]) -> None:
    for path in native.rglob("*"):
        if path.is_file() and path.suffix in (".cpp", ".yaml"):
            path.unlink()
    write(native, {"native_functions.yaml": "", **files})


def test_file_and_entry_take_the_place_of_pytorch_s(upstream: Path, layout: Layout, native: Path) -> None:
    ours = ADD.replace("return self", "return +self")
    folder(native, {"native_functions.yaml": ENTRY, "Add.cpp": ours, "cpu/AddKernel.cpp": STUB + "// ours\n"})
    apply(upstream, layout)
    assert (upstream / NATIVE / "Add.cpp").read_text() == ours
    assert (upstream / NATIVE / "cpu/AddKernel.cpp").read_text().endswith("// ours\n")
    add, mul = yaml.safe_load((upstream / NATIVE / "native_functions.yaml").read_text())
    assert add == {
        "func": "add(Tensor self) -> Tensor",
        "tags": "core",
        "dispatch": {"CPU": "add_cpu", "CUDA": "add_cuda"},
    }
    assert mul == {"func": "mul(Tensor self) -> Tensor"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("Mine.cpp", ADD, "Mine.cpp:2: PyTorch's"), ("cpu/MineKernel.cpp", STUB, "cpu/MineKernel.cpp:5: PyTorch's")],
)
def test_second_definition_is_refused(
    upstream: Path, layout: Layout, native: Path, name: str, text: str, said: str
) -> None:
    """A graft has them in another library."""
    folder(native, {"native_functions.yaml": ENTRY, name: text})
    with pytest.raises(UsageError, match="too") as caught:
        apply(upstream, layout)
    assert said in caught.value.what
    assert git(upstream, "status", "--porcelain") == ""


def test_kernel_that_calls_the_one_it_replaces_is_refused(upstream: Path, layout: Layout, native: Path) -> None:
    """A source tree has no other kernel."""
    ours = ADD.replace("return self", "return stock::add_cpu(self)")
    folder(
        native,
        {"native_functions.yaml": ENTRY, "Add.cpp": ours, "cpu/AddKernel.cpp": "// stock::of(add_stub)\n" + STUB},
    )
    with pytest.raises(UsageError, match=r"Add\.cpp:3: `stock::add_cpu` is a kernel beside the folder's") as caught:
        apply(upstream, layout)
    assert len(caught.value.what.splitlines()) == 1
    assert git(upstream, "status", "--porcelain") == ""


def test_file_of_pytorch_that_replaces_nothing_is_refused(upstream: Path, layout: Layout, native: Path) -> None:
    folder(native, {"Add.cpp": "// nothing\n"})
    with pytest.raises(UsageError, match=r"PyTorch has this file, aten/src/ATen/native/Add\.cpp"):
        apply(upstream, layout)
