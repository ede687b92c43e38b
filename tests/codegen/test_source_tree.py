"""torch's Python files in a source tree, generated with the tree's own torchgen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from graft.checkout.branch import read_branch
from graft.codegen.__main__ import load_operators
from graft.codegen.bindings import generate_bindings
from graft.codegen.describe import describe
from graft.codegen.headers import (
    WheelOutput,
    generate_aten_headers,
    generate_autograd_headers,
    generate_operator_headers,
)
from graft.codegen.output import Output
from graft.codegen.sources import generate_aten_sources, generate_autograd_sources
from graft.codegen.torchgen import TEMPLATES
from graft.core.errors import BuildError
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.fork.apply import apply, lay_out_torchgen
from graft.fork.stack import Stack
from graft.fork.syntax import run_generators
from graft.fork.tree import isolated, open_tree
from graft.inputs.native import AUTOCAST, SAMPLES, NativeFolder, load_native, load_natives
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
    return Layout(TorchVersion("1.0"), (tmp_path / "native",), tmp_path / "out")


def test_list_of_operators_is_that_of_the_wheel(base: Path, tree: Path, layout: Layout, tmp_path: Path) -> None:
    native = load_native(REPOSITORY / "native")
    apply(tree, replace(layout, natives=(native.path,)))
    expected = describe(load_operators(base, load_natives([native.path]), tmp_path / "wheel").new).module()
    assert '"torch.twice_plus": lambda' in expected
    assert (tree / "torch/_added_operators.py").read_text() == expected
    assert "add_docstr(torch.twice_plus, " in (tree / "torch/_torch_docs.py").read_text()


def test_import_of_the_fork_gives_the_folder(tree: Path, layout: Layout, tmp_path: Path) -> None:
    """But for what no tree has: samples, comments on autocast policies."""
    native = load_native(REPOSITORY / "native")
    fork = apply(tree, replace(layout, natives=(native.path,)))
    branch = read_branch(open_tree(tree, load_pin(layout.patches)), fork.base, fork.tip)
    policies = yaml.safe_load(branch.files.pop(str(AUTOCAST)))
    expected = yaml.safe_load((native.path / AUTOCAST).read_text())
    assert {key: sorted(names) for key, names in policies.items()} == {
        key: sorted(names) for key, names in expected.items()
    }
    files = {str(file) for file in native.files} - {str(AUTOCAST), str(SAMPLES)}
    assert branch.files == {name: (native.path / name).read_bytes() for name in files}
    assert branch.left == {}


ENTRIES = Path(__file__).with_name("source_tree")

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
    shutil.copyfile(ENTRIES / "listed.yaml", native / "native_functions.yaml")
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
    with pytest.raises(BuildError, match=rf"Tensr\n.*{native}/native_functions\.yaml:2:"):
        apply(tree, layout)
    assert not (tree / "torch/_added_operators.py").exists()


FORMULA = """
- name: st_plus(Tensor self, Tensor other) -> Tensor
  self: grad
  other: grad
  result: self_t + other_t
"""


# Intended differences, beside our own templates: what a header is called or a statement holds, and the reason.
ON_PURPOSE = {
    r"ViewMetaClasses\.h$": "Graft's sources share a unit, which includes it more than once",
    r"aten_interned_strings\.h$": "it numbers all names, and the base's libraries were compiled with its numbers",
    r'^"aten::\w+", "\w*"\}$': "the list of all operators is in the base's library, which Graft does not change",
    r"^using namespace register\w+;$|^namespace register\w+ \{$": "Graft's dispatch keys share a unit",
    r"^TORCH_LIBRARY_FRAGMENT\(": "the base defines the library",
    r"\bgraft|initialize_autogenerated_functions_out": "Graft's torch._C adds to what the base binds",
    r"PyObject\* THP\w+Module = nullptr;$|^static PyMethodDef definitions": "likewise",
    r" auto functionalization = ": "likewise",
    r"^create_binding_with_pickle<": "another command of the tree's build generates it",
}

# Where generated headers are for Graft, some of them for compilers only, and in a tree.
HEADERS = {
    "include/ATen": "build/aten/src/ATen",
    "wheel/torch/include/ATen": "build/aten/src/ATen",
    "wheel/torch/include/torch/csrc/autograd/generated": "torch/csrc/autograd/generated",
}


def generated(tree: Path) -> tuple[dict[str, str], set[str]]:
    """Return the headers that the tree's own build generates, by name, and the statements of its sources."""
    run_generators(tree)
    paths = [path for folder in sorted({*HEADERS.values()}) for path in sorted((tree / folder).rglob("*.*"))]
    headers = {path.relative_to(tree).as_posix(): path.read_text() for path in paths if path.suffix == ".h"}
    return headers, statements_of(path for path in paths if path.suffix == ".cpp" and "CUDA" not in path.name)


def generated_by_graft(stack: Stack, native: NativeFolder, folder: Path) -> tuple[dict[str, str], set[str]]:
    """Return the same for a graft whose new operators are one unit."""
    base, out = folder / "base", folder / "out"
    lay_out_torchgen(stack, base)
    # There is no wheel with headers to compare with, so every header is written.
    (base / "torch/include/ATen").mkdir(parents=True)
    (base / "torch/include/ATen/Functions.h").touch()
    operators = load_operators(base, load_natives([native.path]), out / "wheel")
    wheel, unit = WheelOutput(out / "wheel", base), Output(out)
    generate_operator_headers(operators, wheel, unit)
    generate_aten_headers(operators, wheel)
    generate_autograd_headers(operators.every, operators.derivatives.infos, wheel, "torch/include")
    generate_aten_sources(operators.new, unit)
    generate_autograd_sources(operators.new, unit)
    generate_bindings(operators.new, unit)
    headers = {
        f"{place}/{path.relative_to(out / own).as_posix()}": path.read_text()
        for own, place in HEADERS.items()
        for path in (out / own).rglob("*.h")
    }
    # torchgen leaves a template that it generated there.
    return headers, statements_of(path for path in out.rglob("*.cpp") if path.parent.name != "templates")


def statements_of(sources: Iterable[Path]) -> set[str]:
    """Return what generated sources say, in whichever of them and without the numbers of tags: each part up to a
    semicolon or a brace, in one line.
    """
    text = re.sub(r"//.*|^\s*#.*", "", "\n".join(path.read_text() for path in sources), flags=re.M)
    parts = re.sub(r"[;{}]", r"\g<0>\0", re.sub(r"\btags_\d+", "tags", text)).split("\0")
    return {" ".join(part.strip(" ,\n").split()) for part in parts}


def is_on_purpose(text: str) -> bool:
    return any(re.search(pattern, text) for pattern in ON_PURPOSE)


@pytest.mark.slow
@pytest.mark.parametrize("is_shipped", [False, True])
def test_tree_s_own_generators_make_what_a_graft_does(
    tree: Path, layout: Layout, tmp_path: Path, is_shipped: bool
) -> None:
    """Without PyTorch's sources: a wheel contains the whole generator."""
    if is_shipped:
        layout = replace(layout, natives=(REPOSITORY / "native",))
    else:
        layout.native.mkdir()
        texts = [(ENTRIES / f"{name}.yaml").read_text() for name in ("compared", "listed")]
        (layout.native / "native_functions.yaml").write_text("".join(texts))
        (layout.native / "derivatives.yaml").write_text(FORMULA)
    shutil.copytree(tree, tmp_path / "upstream")
    old_headers, old = generated(tmp_path / "upstream")
    fork = apply(tree, layout)
    headers, theirs = generated(tree)
    stack = Stack(open_tree(tree, load_pin(layout.patches)), fork.base, tmp_path)
    our_headers, ours = generated_by_graft(stack, load_native(layout.native), tmp_path)
    names = {name for name, text in headers.items() if old_headers.get(name) != text} | our_headers.keys()
    assert len(names) > 40
    differing = [name for name in sorted(names) if headers.get(name) != our_headers.get(name)]
    assert [name for name in differing if not is_on_purpose(name)] == []
    assert len(theirs - old) > 100
    assert "\n".join(text for text in sorted(theirs - old - ours) if not is_on_purpose(text)) == ""
    more = ours - old - theirs - statements_of(TEMPLATES.glob("*.cpp"))
    assert "\n".join(text for text in sorted(more) if not is_on_purpose(text)) == ""
