"""What a folder replaces in a source tree; and its files that are elsewhere there than in a graft."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from graft.core.errors import UsageError
from graft.core.layout import Layout
from graft.fork.apply import NATIVE, apply
from helpers import beside, git, write
from small_tree import commit_upstream

CASES = beside(__file__)

ADD = CASES["add"]
STUB = CASES["stub"]
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
    shutil.rmtree(native)
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


# A kernel that is no stub kernel, which includes headers in each way, and a file that includes it.
FILES = CASES["files"]


@pytest.fixture
def applied(tree: Path, layout: Layout, native: Path) -> Path:
    """ATen's folder in the tree."""
    write(native, FILES)
    apply(tree, layout)
    return tree / NATIVE


def test_kernel_in_cpu_that_is_no_stub_kernel_is_outside_of_it(applied: Path) -> None:
    assert not (applied / "cpu/K.cpp").exists()
    assert (applied / "K_cpu.cpp").read_bytes() == (
        b"#include <ATen/native/cpu/Beside.h>\r\n#include <ATen/native/Above.h>\n"
        b'#  include "lib/api/types.h"  // from the root\n'
        b"#include <ATen/native/Above.h>\n#include <vector>\nint k = BESIDE + ABOVE + TYPES;\n"
    )
    assert (applied / "cpu/StubKernel.cpp").read_text() == FILES["cpu/StubKernel.cpp"]


def test_includes_resolve_in_the_tree(applied: Path) -> None:
    """With the folders that PyTorch's build searches."""
    for name in ("K_cpu.cpp", "Other.cpp"):
        subprocess.run(["g++", "-fsyntax-only", f"-I{applied.parents[1]}", applied / name], check=True)
    assert "#include <ATen/native/K_cpu.cpp>" in (applied / "Other.cpp").read_text()
    assert '#include "lib/deep/impl.h"' in (applied / "Other.cpp").read_text()
    assert (applied / "lib/deep/impl.h").read_text() == (
        '#pragma once\n#include <ATen/native/lib/api/types.h>\n#include "near.h"\n'
    )


def test_header_of_extensions_has_no_python_in_the_tree(tree: Path, layout: Layout, native: Path) -> None:
    """PyTorch's own, which it has there, needs Python; this has the same names."""
    write(native, {"Mine.cpp": "#include <torch/extension.h>\nint mine;\n"})
    apply(tree, layout)
    assert (tree / NATIVE / "Mine.cpp").read_text() == "#include <torch/all.h>\nint mine;\n"


def test_place_that_is_taken(tree: Path, layout: Layout, native: Path, patches: Path) -> None:
    write(native, {**FILES, "K_cpu.cpp": "int mine;\n"})
    apply(tree, layout)
    assert (tree / NATIVE / "K_cpu.cpp").read_text() == "int mine;\n"
    assert (tree / NATIVE / "K_cpu_.cpp").read_text().startswith("#include <ATen/native/cpu/Beside.h>")
    git(tree, "checkout", "--quiet", "main")
    commit_upstream(tree, patches, {f"{NATIVE}/K_cpu_.cpp": "int theirs;\n"})
    with pytest.raises(UsageError, match=f"{native}/cpu/K.cpp: PyTorch has this file, {NATIVE}/K_cpu_.cpp"):
        apply(tree, layout)
