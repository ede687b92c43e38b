"""Where BUILD=source builds, and when it has nothing to do. PyTorch's own build is faked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import ninja as ninja_package
import pytest
from asking import asked
from graft.core.console import StepLine
from graft.core.errors import BuildError, MissingError, UsageError
from graft.core.layout import Layout
from graft.core.process import run
from graft.fork.apply import NATIVE as NATIVE_FOLDER
from graft.fork.apply import apply
from graft.fork.cache import Cache
from graft.fork.pytorch_build import GENERATORS, PyTorchBuild
from graft.fork.source_build import build_source, check_source
from graft.fork.tree import SourceTree
from graft.inputs.native import load_natives
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain
from graft.options import Request
from helpers import Patch, git, make_wheel, program, write
from small_tree import FILES, NATIVE, contents, everything, repository

# What a user may have in a checkout: untracked files, and a develop install.
UNTRACKED = {
    "torch/lib/mine.cpp": "// mine\n",
    "torch/include/mine.h": "// mine\n",
    "torch/lib/libtorch.so": "installed",
    "build/lib.linux/torch/mine.py": "built = 1\n",
}
# What PyTorch's build compiles.
COMPILED = (
    "build/aten/src/ATen/native/cpu/MineKernel.cpp.AVX2.cpp",
    "aten/src/ATen/native/Mine.cpp",
    "aten/src/ATen/native/Add.cpp",
)


class FakedBuild:
    """Fakes CMake, ninja and the wheel.

    Args:
        tree: where it ran.
        targets: the targets of each call of ninja.
        compiled: the sources in compile_commands.json.
    """

    def __init__(self, monkeypatch: Patch) -> None:
        self.tree = Path()
        self.targets: list[Sequence[str]] = []
        self.compiled = list(COMPILED)
        monkeypatch.setattr(PyTorchBuild, "configure", lambda build: self.configure(build))
        monkeypatch.setattr(PyTorchBuild, "ninja", lambda _, line, targets: self.targets.append(targets))
        monkeypatch.setattr(PyTorchBuild, "wheel", lambda *arguments: self.wheel(*arguments))

    def configure(self, build: PyTorchBuild) -> None:
        self.tree = build.tree.path
        commands = [{"file": str(self.tree / name), "output": f"{Path(name).name}.o"} for name in self.compiled]
        if not (self.tree / "build/compile_commands.json").is_file():
            write(self.tree, {"build/compile_commands.json": json.dumps(commands)})

    def wheel(self, build: PyTorchBuild, folder: Path, line: StepLine) -> Path:
        write(self.tree, {"torch/lib/libtorch.so": "built", "build/lib.linux/torch/built.py": ""})
        folder.mkdir(exist_ok=True)
        info = "torch-1.2.0.dist-info"
        members = {
            "torch/version.py": "__version__ = '1.2.0'\n",
            f"{info}/METADATA": "Version: 1.2.0\n",
            f"{info}/WHEEL": "Tag: cp311-cp311-linux_x86_64\n",
            f"{info}/RECORD": "torch/version.py,sha256=x,1\n",
        }
        return make_wheel(folder / "torch-1.2.0-cp311-cp311-linux_x86_64.whl", members)


@pytest.fixture
def pytorch(monkeypatch: Patch) -> FakedBuild:
    return FakedBuild(monkeypatch)


def request_for(layout: Layout, source: Path) -> Request:
    return asked(pin=layout.pin, native=layout.natives, out=layout.out, source=str(source), jobs=1)


def build(layout: Layout, source: Path) -> Path:
    return build_source(request_for(layout, source)).path


@pytest.fixture
def with_submodules(tmp_path: Path, patches: Path) -> Path:
    """A checkout with a submodule in a submodule, like PyTorch's."""
    folders = {"inner": {"inner.h": "// inner\n"}, "outer": {"outer.h": "// outer\n"}, "pytorch": FILES}
    for name, files in folders.items():
        repository(tmp_path / "repositories" / name, files)
    allowed = ["-c", "protocol.file.allow=always"]
    for name, inner in (("outer", "inner"), ("pytorch", "outer")):
        folder = tmp_path / "repositories" / name
        git(folder, *allowed, "submodule", "--quiet", "add", f"../{inner}", f"third_party/{inner}")
        git(folder, "commit", "--quiet", "--message=submodule")
    checkout = tmp_path / "checkout"
    git(tmp_path, *allowed, "clone", "--quiet", "--recurse-submodules", "repositories/pytorch", str(checkout))
    pin = (patches / "pin.yaml").read_text()
    old = pin.partition("commit: ")[2].partition("}")[0]
    write(patches, {"pin.yaml": pin.replace(old, git(checkout, "rev-parse", "HEAD"))})
    shutil.rmtree(tmp_path / "repositories")
    return checkout


def test_own_sources_are_compiled_first(layout: Layout, pytorch: FakedBuild, tree: Path) -> None:
    wheel = build(layout, tree)
    assert pytorch.targets == [["MineKernel.cpp.AVX2.cpp.o", "Mine.cpp.o"]]
    with ZipFile(wheel) as archive:
        version = wheel.name.split("-")[1]
        assert version.startswith("1.2.0+source.")
        assert archive.read("torch/version.py").decode() == f"__version__ = '{version}'\n"
    assert build(layout, tree) == wheel
    assert len(pytorch.targets) == 1


def test_source_that_the_build_does_not_compile_is_named(layout: Layout, pytorch: FakedBuild, tree: Path) -> None:
    write(layout.native, {"sparse/er/Mine.cpp": "", "sparse/Header.h": "", "cuda/Mine.cpp": ""})
    with pytest.raises(BuildError) as caught:
        build(layout, tree)
    assert caught.value.what == f"{layout.native}/sparse/er/Mine.cpp: PyTorch's build does not compile this file"
    assert not pytorch.targets


def test_check_compiles_what_contains_the_operators(
    layout: Layout, pytorch: FakedBuild, tree: Path, monkeypatch: Patch
) -> None:
    generated = {"Operators_1.cpp": "at::_ops::mine::call", "Operators_2.cpp": "mine_not, not_mine"}
    pytorch.compiled += [f"build/aten/src/ATen/{name}" for name in generated]

    def configure(build: PyTorchBuild) -> None:
        pytorch.configure(build)
        write(build.tree.path / "build/aten/src/ATen", generated)
        write(build.tree.path, {"torch/_added_operators.py": 'OPERATORS = [\n    "aten::mine",\n]\n'})

    monkeypatch.setattr(PyTorchBuild, "configure", configure)
    check_source(request_for(layout, tree))
    assert pytorch.targets == [GENERATORS, ["MineKernel.cpp.AVX2.cpp.o", "Mine.cpp.o", "Operators_1.cpp.o"]]


def in_tree(tree: Path, native: Path, layout: Layout, monkeypatch: Patch) -> PyTorchBuild:
    """PyTorch's build in a folder, with the programs that there are."""
    monkeypatch.setenv("PATH", os.pathsep.join([ninja_package.BIN_DIR, os.environ["PATH"]]))
    pin, names = load_pin(layout.patches), [f"{NATIVE_FOLDER}/Mine.cpp"]
    source, cache, natives = SourceTree(tree, tree / ".git"), Cache(tree / "cache"), load_natives([native])
    return PyTorchBuild(source, pin, cache, find_toolchain(pin), natives, names, 2)


def test_launcher_is_put_before_each_compiler(tree: Path, native: Path, layout: Layout, monkeypatch: Patch) -> None:
    programs = program(tree / "programs/ccache", 'echo "ccache $*"').parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    build = in_tree(tree, native, layout, monkeypatch)
    # PyTorch's own choice, if the user makes none.
    for launcher, said in (("echo distcc --quiet", "distcc --quiet g++ -c\n"), ("", "ccache g++ -c\n")):
        build = replace(build, launcher=launcher)
        build.write_launcher()
        for language in ("C", "CXX"):
            command = [build.variables[f"CMAKE_{language}_COMPILER_LAUNCHER"], "g++", "-c"]
            assert run(command, env=build.variables).stdout == said
    tried = tree / "build/CMakeFiles/CMakeScratch/TryCompile-1"
    tried.mkdir(parents=True)
    command = [build.variables["CMAKE_C_COMPILER_LAUNCHER"], "echo", "compiled here"]
    assert run(command, cwd=tried, env=build.variables).stdout == "compiled here\n"


MISSING = "\nint f() { return missing; }\n"
GENERATED = "namespace torch::autograd { int MineBackward0_apply_functional(int) { return missing; } }\n"


@pytest.mark.parametrize(
    ("files", "source", "code", "message"),
    [
        ({"Mine.cpp": ""}, f"{NATIVE_FOLDER}/Mine.cpp", MISSING, "Mine.cpp:2:"),
        # As in test_apply_replacing.py.
        ({"cpu/K.cpp": ""}, f"{NATIVE_FOLDER}/K_cpu.cpp", MISSING, "cpu/K.cpp:2:"),
        (
            {"derivatives.yaml": "- name: mine(Tensor self) -> Tensor\n  self: missing\n"},
            *("torch/csrc/autograd/generated/Functions.cpp", GENERATED),
            "derivatives.yaml:2:9: error: a formula of mine is not valid C++: 'missing' was not declared",
        ),
    ],
)
def test_compiler_s_messages_name_what_the_user_wrote(
    tree: Path, native: Path, layout: Layout, monkeypatch: Patch, files: dict[str, str], source: str, code: str,
    message: str,
) -> None:  # fmt: skip
    write(native, files)
    rule = "rule cxx\n  command = /usr/bin/env g++ -c $in -o $out\n"
    write(tree, {source: code, "build/build.ninja": f"{rule}build mine.o: cxx ../{source}\n"})
    pytorch = replace(in_tree(tree, native, layout, monkeypatch), sources=[source])
    with pytest.raises(BuildError) as caught:
        pytorch.ninja(StepLine("compile"), ["mine.o"])
    assert f"{native}/{message}" in caught.value.what and "was not declared" in caught.value.what


def test_kernel_that_is_outside_of_cpu_in_the_tree_is_compiled(
    tree: Path, native: Path, layout: Layout, monkeypatch: Patch
) -> None:
    write(native, {"cpu/K.cpp": ""})
    commands = [{"file": str(tree / NATIVE_FOLDER / each), "output": f"{each}.o"} for each in ("K_cpu.cpp", "Mine.cpp")]
    commands.append({"file": str(tree / "build" / NATIVE_FOLDER / "cpu/MineKernel.cpp.AVX2.cpp"), "output": "m.o"})
    write(tree, {"build/compile_commands.json": json.dumps(commands)})
    pytorch = replace(in_tree(tree, native, layout, monkeypatch), sources=[f"{NATIVE_FOLDER}/K_cpu.cpp"])
    assert pytorch.objects() == ["K_cpu.cpp.o"]


# Fakes the Python of the build's environment. It says much before ninja fails, or writes a wheel.
PYTHON = """for n in $(seq 100); do echo "-- Building version"; done
for last; do tree=$last; done
if [ -e "$tree/fails" ]; then
    echo "[1/2, 1s left] Building x.o"
    echo "FAILED: x.o"
    echo "/usr/bin/g++ -c x"
    echo "$tree/aten/src/ATen/native/Mine.cpp:1:1: error: it is wrong"
    exit 1
fi
mkdir -p "$OUT" && echo "$*" >"$OUT/torch-1.2.0-cp311-cp311-linux_x86_64.whl"
"""


def test_whole_build_is_that_of_the_tree(
    tree: Path, native: Path, layout: Layout, monkeypatch: Patch, tmp_path: Path
) -> None:
    pytorch = in_tree(tree, native, layout, monkeypatch)
    write(tree, {"fails": "", "build/lib.linux/old.py": "", "torch/include/old.h": "", "cache/none": ""})
    program(pytorch.cache.environment / "bin/python", PYTHON)
    monkeypatch.setenv("OUT", str(tmp_path / "wheel"))
    with pytest.raises(BuildError) as caught:
        pytorch.wheel(tmp_path / "wheel", StepLine("build"))
    assert caught.value.what.splitlines() == ["FAILED: x.o", f"{native}/Mine.cpp:1:1: error: it is wrong"]
    assert not (tree / "build/lib.linux").exists()
    assert not (tree / "torch/include").exists()
    (tree / "fails").unlink()
    words = pytorch.wheel(tmp_path / "wheel", StepLine("build")).read_text().split()
    assert words[:4] == ["-m", "build", "--wheel", "--no-isolation"]
    (tree / "none").mkdir()
    monkeypatch.setenv("OUT", str(tree / "none"))
    with pytest.raises(BuildError, match="expected one wheel from PyTorch's build, but got 0"):
        pytorch.wheel(tmp_path / "wheel", StepLine("build"))


def test_checkout_is_only_read(layout: Layout, pytorch: FakedBuild, with_submodules: Path) -> None:
    write(with_submodules, UNTRACKED)
    before = everything(with_submodules)
    build(layout, with_submodules)
    assert everything(with_submodules) == before
    assert with_submodules not in (pytorch.tree, *pytorch.tree.parents)
    assert (pytorch.tree / "aten/src/ATen/native/Mine.cpp").is_file()
    assert (pytorch.tree / "third_party/outer/third_party/inner/inner.h").read_text() == "// inner\n"
    assert not (pytorch.tree / "torch/lib/mine.cpp").exists()
    assert git(pytorch.tree, "status", "--porcelain", "--untracked-files=no") == ""


def test_tree_stays_as_it_was_built(layout: Layout, pytorch: FakedBuild, tree: Path) -> None:
    build(layout, tree)
    before = everything(pytorch.tree)
    write(layout.native, {"Mine.cpp": "// another\n"})
    build(layout, tree)
    after = everything(pytorch.tree)
    changed = {name for name, state in after.items() if state != before.get(name) and not name.startswith(".git/")}
    installed = ("torch/lib/libtorch.so", "build/lib.linux/torch/built.py")
    assert changed == {"aten/src/ATen/native/Mine.cpp", *installed}


def test_applied_fork_is_built_from_its_base(layout: Layout, pytorch: FakedBuild, tree: Path, native: Path) -> None:
    write(native, {"Mine.cpp": "// another\n"})
    apply(tree, layout)
    write(native, {"Mine.cpp": NATIVE["Mine.cpp"]})
    before = everything(tree)
    build(layout, tree)
    assert everything(tree) == before
    assert (pytorch.tree / "aten/src/ATen/native/Mine.cpp").read_bytes() == NATIVE["Mine.cpp"].encode()


def test_worktree_is_a_checkout(layout: Layout, pytorch: FakedBuild, tree: Path) -> None:
    git(tree, "worktree", "add", "--quiet", "--detach", "../worktree")
    before = everything(tree.parent / "worktree")
    build(layout, tree.parent / "worktree")
    assert everything(tree.parent / "worktree") == before
    assert (pytorch.tree / "torch/second.py").is_file()


def test_plain_folder_stays_one(layout: Layout, pytorch: FakedBuild, tmp_path: Path) -> None:
    ignored = {"third_party/lib/.gitignore": "*.def\n", "third_party/lib/lib.def": "one\n"}
    folder = write(tmp_path / "plain", {**FILES, **UNTRACKED, **ignored})
    before = everything(folder)
    build(layout, folder)
    assert everything(folder) == before
    assert (pytorch.tree / "third_party/lib/lib.def").read_text() == "one\n"
    assert not (pytorch.tree / "build/lib.linux/torch/mine.py").exists()
    # Its changes are copied, and nothing else is written.
    times = {name: (pytorch.tree / name).stat().st_mtime_ns for name in FILES}
    write(folder, {"torch/untouched.py": "changed = 1\n"})
    write(layout.native, {"Mine.cpp": "// another\n"})
    build(layout, folder)
    assert (pytorch.tree / "torch/untouched.py").read_text() == "changed = 1\n"
    assert (pytorch.tree / "version.txt").stat().st_mtime_ns == times["version.txt"]


def test_changes_that_would_not_be_built_are_refused(layout: Layout, pytorch: FakedBuild, tree: Path) -> None:
    write(tree, {"torch/untouched.py": "mine\n"})
    before = everything(tree)
    with pytest.raises(UsageError, match=r"M torch/untouched\.py"):
        build(layout, tree)
    assert everything(tree) == before


def test_submodule_that_is_missing_is_named(layout: Layout, pytorch: FakedBuild, with_submodules: Path) -> None:
    inner = with_submodules / "third_party/outer/third_party/inner"
    there = contents(inner)
    shutil.rmtree(inner)
    inner.mkdir()
    with pytest.raises(MissingError, match=rf"{inner}: this submodule") as caught:
        build(layout, with_submodules)
    assert caught.value.todo == f"git -C {with_submodules}/third_party/outer submodule update --init --recursive"
    # Once copied, the files are reused.
    git(inner, "init", "--quiet")
    write(inner, {name: content.decode() for name, content in there.items()})
    git(inner, "add", "--all")
    git(inner, "fetch", "--quiet", str(with_submodules / ".git/modules/third_party/outer/modules/third_party/inner"))
    build(layout, with_submodules)
    assert (pytorch.tree / "third_party/outer/third_party/inner/inner.h").read_text() == "// inner\n"
