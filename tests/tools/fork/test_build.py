"""Where BUILD=source builds, and when it has nothing to do. PyTorch's own build is faked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from graft.core.console import StepLine
from graft.core.errors import FetchError, SourceError
from graft.core.layout import Layout
from graft.fork import build as build_module
from graft.fork.apply import apply
from graft.fork.build import build_source
from graft.fork.configure import Configured
from graft.fork.ninja import GENERATORS, what_is_left
from helpers import git, write
from small_tree import FILES, NATIVE, contents

# What a user may have in a checkout: untracked files, and a develop install.
UNTRACKED = {
    "torch/lib/mine.cpp": "// mine\n",
    "torch/include/mine.h": "// mine\n",
    "torch/lib/libtorch.so": "installed",
    "build/lib.linux/torch/mine.py": "built = 1\n",
}
HEADER = "build/aten/src/ATen/core/Body.h"


class PyTorchsBuild:
    """Fakes CMake, ninja and setup.py.

    Args:
        ran: whether it ran since this was last reset.
        tree: where it ran.
        compiled: whether the header's users were recompiled.
        targets: the targets of each call of ninja.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran, self.tree, self.compiled = False, Path(), False
        self.targets: list[Sequence[str]] = []
        for name in ("make_environment", "variables"):
            monkeypatch.setattr(build_module, name, lambda *_: {})
        for name in ("ninja", "pack_wheel", "configure"):
            monkeypatch.setattr(build_module, name, getattr(self, name))

    def configure(self, tree: Path, *_: object) -> bool:
        names = ["build/aten/src/ATen/native/cpu/MineKernel.cpp.AVX2.cpp", "aten/src/ATen/native/Mine.cpp", "a.cpp"]
        commands = [{"file": str(tree / name), "output": f"{Path(name).name}.o"} for name in names]
        if not (tree / "build/compile_commands.json").is_file():
            write(tree, {"build/compile_commands.json": json.dumps(commands)})
        return True

    def ninja(self, configured: Configured, jobs: int, line: StepLine, targets: Sequence[str] = ()) -> int:
        header, object_file = configured.tree / HEADER, configured.tree / "build/user.o"
        self.ran, self.tree = True, configured.tree
        self.targets.append(targets)
        if targets == GENERATORS:
            yaml = (configured.tree / "aten/src/ATen/native/native_functions.yaml").read_text()
            words = [line.split()[2].partition("(")[0] for line in yaml.splitlines() if line.startswith("- func")]
            text = "struct Body {\n" + "".join(f"  void {word}();\n" for word in words) + "};\n"
            if not header.is_file() or header.read_text() != text:
                write(configured.tree, {HEADER: text})
        elif not targets:
            self.compiled = not object_file.is_file() or object_file.stat().st_mtime_ns < header.stat().st_mtime_ns
            if self.compiled:
                object_file.touch()
        return 1

    def pack_wheel(self, configured: Configured, folder: Path, version: str, out: Path) -> Path:
        write(configured.tree, {"torch/lib/libtorch.so": "built", "build/lib.linux/torch/built.py": ""})
        write(out, {f"torch-{version}.whl": version})
        return out / f"torch-{version}.whl"


@pytest.fixture
def pytorch(monkeypatch: pytest.MonkeyPatch) -> PyTorchsBuild:
    return PyTorchsBuild(monkeypatch)


def build(layout: Layout, source: Path, *, incremental: bool = True) -> Path:
    return build_source(layout, source=str(source), jobs=1, incremental=incremental).wheel


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below ``folder`` with its time, including git's own files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def with_submodules(tmp_path: Path, patches: Path) -> Path:
    """A checkout with a submodule in a submodule, like PyTorch's."""
    folders = {"inner": {"inner.h": "// inner\n"}, "outer": {"outer.h": "// outer\n"}, "pytorch": FILES}
    for name, files in folders.items():
        folder = write(tmp_path / "repositories" / name, files)
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message=first")
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


def test_own_sources_are_compiled_first(layout: Layout, pytorch: PyTorchsBuild, tree: Path) -> None:
    build(layout, tree)
    assert pytorch.targets == [GENERATORS, ["MineKernel.cpp.AVX2.cpp.o", "Mine.cpp.o"], ()]


def test_rest_of_a_begun_build_is_told_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured = Configured(tmp_path, {}, (), tmp_path)
    assert what_is_left(configured, 2) == ""
    lines = [f"{n}\t{n + 12000}\t0\tfile{n}.o\t0\n" for n in range(60)]
    write(tmp_path, {"build/.ninja_log": "".join(["# ninja log v7\n", "0\t900000\t0\theader.h\t0\n", *lines])})
    rule = "rule cc\n command = touch $out\n"
    edges = "".join(f"build file{n}.o: cc\n" for n in range(60, 160))
    write(tmp_path, {"build/build.ninja": rule + edges})
    assert what_is_left(configured, 2) == "100 commands left, about 10 minutes"
    assert not list(tmp_path.glob("build/*.o"))


def test_checkout_is_only_read(layout: Layout, pytorch: PyTorchsBuild, with_submodules: Path) -> None:
    write(with_submodules, UNTRACKED)
    before = everything(with_submodules)
    build(layout, with_submodules)
    assert everything(with_submodules) == before
    assert with_submodules not in (pytorch.tree, *pytorch.tree.parents)
    assert (pytorch.tree / "aten/src/ATen/native/Mine.cpp").is_file()
    assert (pytorch.tree / "third_party/outer/third_party/inner/inner.h").read_text() == "// inner\n"
    assert not (pytorch.tree / "torch/lib/mine.cpp").exists()
    assert git(pytorch.tree, "status", "--porcelain", "--untracked-files=no") == ""


def test_tree_stays_as_it_was_built(layout: Layout, pytorch: PyTorchsBuild, tree: Path) -> None:
    build(layout, tree)
    before = everything(pytorch.tree)
    write(layout.native, {"Mine.cpp": "// another\n"})
    build(layout, tree)
    after = everything(pytorch.tree)
    changed = {name for name, state in after.items() if state != before.get(name) and "/.git/" not in name}
    installed = ("torch/lib/libtorch.so", "build/lib.linux/torch/built.py", "build/graft-incremental.json")
    assert changed == {str(pytorch.tree / name) for name in ("aten/src/ATen/native/Mine.cpp", *installed)}
    assert not pytorch.compiled


def test_applied_fork_is_built_from_its_base(layout: Layout, pytorch: PyTorchsBuild, tree: Path, native: Path) -> None:
    write(native, {"Mine.cpp": "// another\n"})
    apply(tree, layout)
    write(native, {"Mine.cpp": NATIVE["Mine.cpp"]})
    before = everything(tree)
    build(layout, tree)
    assert everything(tree) == before
    assert (pytorch.tree / "aten/src/ATen/native/Mine.cpp").read_bytes() == NATIVE["Mine.cpp"].encode()


def test_worktree_is_a_checkout(layout: Layout, pytorch: PyTorchsBuild, tree: Path) -> None:
    git(tree, "worktree", "add", "--quiet", "--detach", "../worktree")
    before = everything(tree.parent / "worktree")
    build(layout, tree.parent / "worktree")
    assert everything(tree.parent / "worktree") == before
    assert (pytorch.tree / "torch/second.py").is_file()


def test_plain_folder_stays_one(layout: Layout, pytorch: PyTorchsBuild, tmp_path: Path) -> None:
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


def test_changes_that_would_not_be_built_are_refused(layout: Layout, pytorch: PyTorchsBuild, tree: Path) -> None:
    write(tree, {"torch/untouched.py": "mine\n"})
    before = everything(tree)
    with pytest.raises(SourceError, match=r"M torch/untouched\.py"):
        build(layout, tree)
    assert everything(tree) == before


def test_submodule_that_is_missing_is_named(layout: Layout, pytorch: PyTorchsBuild, with_submodules: Path) -> None:
    inner = with_submodules / "third_party/outer/third_party/inner"
    there = contents(inner)
    shutil.rmtree(inner)
    inner.mkdir()
    with pytest.raises(FetchError, match=rf"{inner}: this submodule") as caught:
        build(layout, with_submodules)
    assert caught.value.todo == f"git -C {with_submodules}/third_party/outer submodule update --init --recursive"
    # Once copied, the files are reused.
    git(inner, "init", "--quiet")
    write(inner, {name: content.decode() for name, content in there.items()})
    git(inner, "add", "--all")
    git(inner, "fetch", "--quiet", str(with_submodules / ".git/modules/third_party/outer/modules/third_party/inner"))
    build(layout, with_submodules)
    assert (pytorch.tree / "third_party/outer/third_party/inner/inner.h").read_text() == "// inner\n"


def test_whole_build_is_made_where_an_incremental_one_left_objects_alone(
    layout: Layout, pytorch: PyTorchsBuild, tree: Path
) -> None:
    def built(*, incremental: bool) -> bool:
        pytorch.ran = False
        build(layout, tree, incremental=incremental)
        return pytorch.ran

    assert built(incremental=True)
    assert not built(incremental=False)  # everything was compiled
    write(layout.native, {"native_functions.yaml": NATIVE["native_functions.yaml"] + "- func: more() -> ()\n"})
    assert built(incremental=True)
    assert not pytorch.compiled
    assert not built(incremental=True)
    assert built(incremental=False)
    assert pytorch.compiled
    assert not built(incremental=False)
    assert not built(incremental=True)
