"""torch's Python files in a source tree, generated with the tree's own torchgen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from graft.codegen.__main__ import load_operators
from graft.codegen.python import describe
from graft.core.errors import OperatorError
from graft.core.layout import REPOSITORY, Layout
from graft.fork import parity
from graft.fork.apply import apply
from graft.fork.tree import isolated, open_tree
from graft.inputs.native import load_native
from graft.inputs.pin import load_pin


@pytest.fixture
def tree(base: Path, tmp_path: Path) -> Path:
    """Move the files that upstream's setup.py copies below torchgen/packaged back to their places in the tree."""
    folder, packaged = tmp_path / "pytorch", base / "torchgen/packaged"
    shutil.copytree(base / "torchgen", folder / "torchgen", ignore=shutil.ignore_patterns("packaged", "__pycache__"))
    shutil.copytree(packaged / "autograd", folder / "tools/autograd", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(packaged / "ATen", folder / "aten/src/ATen")
    (folder / "aten/src/ATen/CMakeLists.txt").write_text(
        'file(GLOB native_cpp "native/*.cpp")\nfile(GLOB kernels "native/cpu/*.cpp")\n'
        'file(GLOB cuda "native/cuda/*.cu")\n'
    )
    subprocess.run(["git", "init", "--quiet", folder], env=isolated(), check=True)
    (folder / "version.txt").write_text("1.0\n")
    (folder / "torch").mkdir()
    for name in ("_torch_docs.py", "_tensor_docs.py"):
        shutil.copyfile(base / "torch" / name, folder / "torch" / name)
    return folder


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A pin without patches, and a native folder that does not exist yet."""
    folder = tmp_path / "patches/1.0"
    folder.mkdir(parents=True)
    (folder / "series").touch()
    (folder / "pin.yaml").write_text(
        "version: 1.0\nsource: {git: {repository: none, tag: none, commit: none}}\n"
        "wheel: {requirement: torch==1.0, sha256: {}}\ncompiler: {gxx: 11, standard: c++20}\n"
    )
    monkeypatch.setattr(Layout, "patches", folder)
    return Layout("1.0", (tmp_path / "native",), tmp_path / "out")


def test_it_is_the_graft_s(base: Path, tree: Path, layout: Layout, tmp_path: Path) -> None:
    native = load_native(REPOSITORY / "native")
    apply(tree, replace(layout, natives=(native.path,)))
    expected = describe(load_operators(base, [native.path], tmp_path / "wheel")).module()
    assert '"torch.twice_plus": lambda' in expected
    assert (tree / "torch/_added_operators.py").read_text() == expected
    assert "add_docstr(torch.twice_plus, " in (tree / "torch/_torch_docs.py").read_text()


LISTED = """
- func: st_view(Tensor(a) self) -> Tensor(a)
  dispatch:
    CompositeExplicitAutograd: st_view

- func: st_view_copy(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutogradNonFunctional: st_view_copy
  tags: view_copy
  autogen: st_view_copy.out

- func: st_count(Tensor self) -> int
  dispatch:
    CompositeExplicitAutograd: st_count
"""

PRINT_LISTS = """
from torchgen.native_function_generation import FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT
from tools.autograd.gen_inplace_or_view_type import ALL_VIEW_FUNCTIONS, RETURNS_VIEWS_OF_INPUT, VIEW_FUNCTIONS
from tools.autograd.gen_variable_type import GRADIENT_IMPLEMENTED_FOR_COMPLEX
print("st_count" in FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT)
print(ALL_VIEW_FUNCTIONS.get("st_view"), "st_view" in RETURNS_VIEWS_OF_INPUT, VIEW_FUNCTIONS.get("st_view"))
print("st_view" in GRADIENT_IMPLEMENTED_FOR_COMPLEX, "st_count" in GRADIENT_IMPLEMENTED_FOR_COMPLEX)
"""


def test_torchgen_s_own_lists_know_the_operators(tree: Path, layout: Layout) -> None:
    """The tree's build generates in a separate process, whose lists Graft cannot extend."""
    native = layout.native
    native.mkdir()
    (native / "native_functions.yaml").write_text(LISTED)
    (native / "derivatives.yaml").write_text("- name: st_view(Tensor(a) self) -> Tensor(a)\n  self: grad\n")
    apply(tree, layout)
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", PRINT_LISTS], cwd=tree, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == ["True", "self True self", "True False"]


def test_fault_is_named_with_its_place_in_the_native_folder(tree: Path, layout: Layout) -> None:
    native = layout.native
    native.mkdir()
    (native / "native_functions.yaml").write_text("# mine\n- func: mine(Tensr self) -> Tensor\n")
    with pytest.raises(OperatorError, match=rf"Tensr\n.*{native}/native_functions\.yaml:2:"):
        apply(tree, layout)
    assert not (tree / "torch/_added_operators.py").exists()


COMPARED = """
- func: st_plus(Tensor self, Tensor other) -> Tensor
  variants: function, method
  structured_delegate: st_plus.out
  tags: pointwise

- func: st_plus_(Tensor(a!) self, Tensor other) -> Tensor(a!)
  variants: method
  structured_delegate: st_plus.out
  tags: pointwise

- func: st_plus.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  structured_inherits: TensorIteratorBase
  dispatch:
    CPU: st_plus_out
  tags: pointwise

- func: st_pair(Tensor self) -> (Tensor first, Tensor second)
  python_module: linalg
  variants: function
  dispatch:
    CPU: st_pair
"""
FORMULA = """
- name: st_plus(Tensor self, Tensor other) -> Tensor
  self: grad
  other: grad
  result: self_t + other_t
"""


@pytest.mark.slow
def test_tree_s_own_generators_make_what_a_graft_does(tree: Path, layout: Layout) -> None:
    """Without PyTorch's sources: a wheel contains the whole generator."""
    layout.native.mkdir()
    (layout.native / "native_functions.yaml").write_text(f"{COMPARED}{LISTED}")
    (layout.native / "derivatives.yaml").write_text(FORMULA)
    apply(tree, layout)
    parity.run_generators(tree)
    found = parity.compare_with_graft(open_tree(tree, load_pin(layout.patches)), load_native(layout.native))
    assert found.alike > 50
    assert "torch/csrc/autograd/generated/python_linalg_functions.cpp" in found.changed
