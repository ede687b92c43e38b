"""A small tree like PyTorch's, patches for it and a native folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graft.codegen.description import NAMESPACES, BoundName, Description
from graft.fork.apply import Fork
from helpers import git, write

_TORCH = next(namespace for namespace in NAMESPACES if namespace.name == "torch")
DESCRIPTION = Description(bound=[BoundName(_TORCH, "mine", "mine", signatures="mine(input)", reference="", derived="")])

TEXT = "".join(f"line_{number}\n" for number in range(1, 41))
FILES = {
    "version.txt": "1.2.0a0\n",
    ".gitignore": "build/\n",
    "torch/text.py": TEXT,
    "torch/untouched.py": "pass\n",
    "torch/stub.pyi.in": "y: int\n",
    "torchgen/gen.py": "pass\n",
    "tools/autograd/lists.py": "LISTS = []\n",
    "tools/autograd/derivatives.yaml": "- name: add(Tensor self) -> Tensor\n  self: grad\n",
    "aten/src/ATen/templates/Functions.h": "// template\n",
    "aten/src/ATen/native/native_functions.yaml": "- func: add(Tensor self) -> Tensor\n",
    "aten/src/ATen/native/tags.yaml": "- tag: core\n  desc: a tag\n",
    "aten/src/ATen/native/Add.cpp": "// add\n",
    "aten/src/ATen/CMakeLists.txt": """file(GLOB native_cpp "native/*.cpp")
file(GLOB native_cuda_cu "native/cuda/*.cu")
file(GLOB_RECURSE base_cpp "core/*.cpp")
""",
    "cmake/Codegen.cmake": """  file(GLOB kernels "${PROJECT_SOURCE_DIR}/aten/src/ATen/native/cpu/*.cpp"
       "${PROJECT_SOURCE_DIR}/aten/src/ATen/native/x/*.cpp")
""",
}
PATCHES = {
    "say_two": """Subject: text: say
 two
Why: a test, which goes
 over two lines
Kind: intended difference

diff --git a/torch/text.py b/torch/text.py
--- a/torch/text.py
+++ b/torch/text.py
@@ -1,3 +1,3 @@
 line_1
-line_2
+line_two
 line_3
@@ -29,3 +29,3 @@
 line_29
-line_30
+line_thirty
 line_31
""",
    "new_file": """Subject: text: a second file
Why: a patch may bring one

diff --git a/torch/second.py b/torch/second.py
new file mode 100644
--- /dev/null
+++ b/torch/second.py
@@ -0,0 +1 @@
+second = 2\x20\x20
""",
}
NATIVE = {
    "native_functions.yaml": "- func: mine(Tensor self) -> Tensor\n- func: other(Tensor self) -> Tensor\n",
    "derivatives.yaml": "- name: mine(Tensor self) -> Tensor\n  self: grad\n",
    "Mine.cpp": "// mine\r\n// with a second line, and no end of it",
    "Mine.h": "// the header\n",
    "cpu/MineKernel.cpp": "REGISTER_DISPATCH(mine_stub, &mine_kernel)\n",
    "cuda/Mine.cu": "// on CUDA\n",
    "python/_torch_docs.py": "added = 3\n",
    "python/text.py": "added = 2\n",
    "python/stub.pyi": "x: int\n",
    "python/nn/mine.py": "mine = 3\n",
    "docs/mine.rst": "What it does.\n",
    "tests/test_mine.py": "pass\n",
}


def state(tree: Path) -> tuple[str, str, str]:
    """Everything that a rejected command must not change."""
    head, branch = git(tree, "rev-parse", "HEAD"), git(tree, "rev-parse", "--symbolic-full-name", "HEAD")
    return head, branch, git(tree, "status", "--porcelain")


def contents(tree: Path) -> dict[str, bytes]:
    paths = [path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in paths}


def times(tree: Path) -> dict[str, int]:
    return {name: (tree / name).stat().st_mtime_ns for name in contents(tree)}


def log(tree: Path, fork: Fork, form: str) -> list[str]:
    return git(tree, "log", "--reverse", f"--format={form}", f"{fork.base}..HEAD").splitlines()


def commit(tree: Path, files: Mapping[str, str], message: str = "commit") -> str:
    """Write files and commit them. Return the commit."""
    write(tree, files)
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--allow-empty", f"--message={message}")
    return git(tree, "rev-parse", "HEAD")


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    """Return a new repository with one commit of these files."""
    write(folder, files)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, {})
    return folder


def commit_upstream(tree: Path, patches: Path, files: Mapping[str, str]) -> Path:
    """Commit files to the small tree, and pin that commit. Return the tree."""
    commit(tree, files)
    pin = patches / "pin.yaml"
    pin.write_text(pin.read_text().replace(git(tree, "rev-parse", "HEAD~1"), git(tree, "rev-parse", "HEAD")))
    return tree
