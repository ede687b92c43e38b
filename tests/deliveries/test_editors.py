"""Where people write: clangd reads the user's files with what the next build uses, and git ignores what it is given."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checkout_repository import NATIVE, commit, edit, make_checkout, name_commit, run_git
from graft.core.layout import REPOSITORY
from helpers import kernel, write
from users import CLIP, Environment, make

REDUCE = f"{NATIVE}/cpu/ReduceOpsKernel.cpp"

# A project whose sources are not in its native folder. clang does not know one of the flags.
PROJECT = {
    "pyproject.toml": """[project]
name = "my-ops"
version = "1.0"
[tool.graft]
native = "native"
sources = ["csrc/**/*.cc"]
include-dirs = ["include"]
define = ["FACTOR=3"]
cxx-flags = ["-fipa-pta"]
""",
    "native/native_functions.yaml": CLIP["native_functions.yaml"],
    "native/derivatives.yaml": CLIP["derivatives.yaml"],
    "include/factor.h": "#pragma once\nconstexpr int factor = FACTOR;\n",
    "csrc/ops/clip.cc": '#include "factor.h"\n#include <ATen/native/Scaled.h>\n'
    + CLIP["SoftClip.cpp"].replace(".tanh()", ".tanh().mul(scaled(factor))"),
    "native/Scaled.h": "#pragma once\ninline int scaled(int x) { return x / 3; }\n",
}

# A kernel that calls the folder's own operator, with OpenMP's header, which clang may lack.
LOOP = """#include <ATen/Parallel.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/soft_clip.h>

namespace at::native {
namespace {
using loop_fn = void (*)(int64_t);
DECLARE_DISPATCH(loop_fn, graft_loop_stub)
void loop(int64_t n) {
  at::parallel_for(0, n, 1, [](int64_t, int64_t) { at::vec::Vectorized<float> zeros(0.0f); });
}
at::Tensor clipped(const at::Tensor& x) {
  return at::soft_clip(x, 2);
}
} // namespace
REGISTER_DISPATCH(graft_loop_stub, &loop)
} // namespace at::native
"""


def check(environment: Environment, *words: str | Path) -> Path:
    """Check, and return the folder that clangd is to be given."""
    said = make("check", environment, *words)
    return Path(said.rpartition("--compile-commands-dir=")[2].partition(";")[0])


def entries(folder: Path) -> dict[Path, list[str]]:
    """Return the arguments of the compiler for each file."""
    read: list[dict[str, Any]] = json.loads((folder / "compile_commands.json").read_text())
    found = {Path(each["file"]): each["arguments"] for each in read}
    assert len(found) == len(read)
    return found


def clangd(file: Path, *words: str, cwd: Path | None = None) -> str:
    """Return the errors that clangd finds in a file."""
    if not shutil.which("clangd"):
        pytest.skip("clangd is not installed")
    done = subprocess.run(
        ["clangd", *words, f"--check={file}", "--check-lines=1"], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert "Loaded compilation database from" in done.stderr, done.stderr
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.slow
def test_every_source_of_a_folder(stock: Environment, tmp_path: Path) -> None:
    folder = write(tmp_path, {**CLIP, "cpu/LoopKernel.cpp": LOOP})
    place = check(stock, folder)
    sources = entries(place)
    assert sources.keys() == {folder / "SoftClip.cpp", folder / "cpu/LoopKernel.cpp"}
    for source in sources:
        assert clangd(source, f"--compile-commands-dir={place}") == ""
    words = sources[folder / "cpu/LoopKernel.cpp"]
    assert sum(word.startswith("-DCPU_CAPABILITY=") for word in words) == 1
    paths = [word.removeprefix("-I") for word in words if word.startswith("-I")]
    assert paths and all(Path(path).is_absolute() for path in paths)
    write(folder, {"SoftClip.cpp": CLIP["SoftClip.cpp"].replace("div(limit)", "div(limitt)")})
    assert "limitt" in clangd(folder / "SoftClip.cpp", f"--compile-commands-dir={place}")


def test_new_file_and_new_operator_have_entries_after_a_check(stock: Environment, tmp_path: Path) -> None:
    folder = write(tmp_path, CLIP)
    before = check(stock, folder)
    added = "- func: graft_added(Tensor self) -> Tensor\n  dispatch:\n    CompositeExplicitAutograd: graft_added\n"
    source = kernel("graft_added", "const Tensor& self", "return at::graft_added(self);")
    text = CLIP["native_functions.yaml"]
    write(folder, {"native_functions.yaml": f"{text}\n{added}", "Added.cpp": f"#include <ATen/Functions.h>\n{source}"})
    assert check(stock, folder) == before
    assert folder / "Added.cpp" in entries(before)
    assert clangd(folder / "Added.cpp", f"--compile-commands-dir={before}") == ""
    write(folder, {"native_functions.yaml": text})
    (folder / "Added.cpp").unlink()
    check(stock, folder)
    assert folder / "Added.cpp" not in entries(before)
    assert not [path for path in before.rglob("*") if path.is_symlink() and not path.exists()]


@pytest.mark.slow
def test_project_with_links(stock: Environment, tmp_path: Path) -> None:
    """Which are found without an argument, and which git ignores."""
    project = write(tmp_path / "my_ops", PROJECT)
    run_git(project, "init", "--quiet")
    commit(project, "Everything")
    said = make("check", stock, project / "native", "--editor")
    assert "--compile-commands-dir" not in said
    assert run_git(project, "status", "--porcelain") == ""
    assert clangd(project / "csrc/ops/clip.cc", cwd=project) == ""
    assert (project / "native/.graft/native_functions.json").is_file()
    assert "--compile-commands-dir" not in make("check", stock, project / "native")
    # A file of the user stays, and the command says so.
    (project / "compile_commands.json").unlink()
    write(project, {"compile_commands.json": "[]"})
    said = make("check", stock, project / "native", "--editor")
    assert f"{project}/compile_commands.json: it is there already" in said and "--compile-commands-dir=" in said
    assert (project / "compile_commands.json").read_text() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["cpu/RoiPoolKernel.cpp", "BatchRules.cpp"])
def test_operators_that_ship(stock: Environment, source: str) -> None:
    place = check(stock, REPOSITORY / "native")
    assert clangd(REPOSITORY / "native" / source, f"--compile-commands-dir={place}") == ""


@pytest.mark.slow
def test_edited_kernel_of_a_checkout(stock_copy: Environment, tmp_path: Path) -> None:
    """All of its file is read, of which a build compiles a part."""
    tree = make_checkout(tmp_path / "pytorch", stock_copy.packages, (), (REDUCE,))
    name_commit(stock_copy.packages, commit(tree, "What the wheel was built from"))
    edit(tree, REDUCE, "cum_number += self_data", "cum_number += 1 * self_data")
    said = make("check", stock_copy, "--source", tree, "--editor")
    assert "--compile-commands-dir" not in said
    assert run_git(tree, "status", "--porcelain").split() == ["M", REDUCE]
    assert clangd(tree / REDUCE, cwd=tree) == ""
