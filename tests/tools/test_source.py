"""The fork in a PyTorch checkout: made of a small tree, patches and a native folder of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.errors import OperatorError, PinError, SourceError, UsageError
from scripts.layout import REPOSITORY
from scripts.merge import MergedFile
from scripts.native import NativeFolder
from scripts.overlay import Overlay
from scripts.source import apply as apply_module
from scripts.source.apply import Fork, apply
from scripts.source.export import export
from scripts.source.moving import MOVING_REF
from scripts.source.stack import commit_message
from scripts.source.tree import Tree

# What Graft itself adds to every torch.
INSTALLED = REPOSITORY / "scripts/installed"

TEXT = "".join(f"line {number}\n" for number in range(1, 41))
FILES = {
    "version.txt": "1.2.0a0\n",
    ".gitignore": "build/\n",
    "torch/text.py": TEXT,
    "torch/untouched.py": "pass\n",
    "torch/stub.pyi.in": "y: int\n",
    "torchgen/gen.py": "pass\n",
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
 line 1
-line 2
+line two
 line 3
@@ -29,3 +29,3 @@
 line 29
-line 30
+line thirty
 line 31
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
    "cpu/MineKernel.cpp": "// the kernel\n",
    "cuda/Mine.cu": "// on CUDA\n",
    "python/text.py": "added = 2\n",
    "python/stub.pyi": "x: int\n",
    "python/nn/mine.py": "mine = 3\n",
    "docs/mine.rst": "What it does.\n",
    "tests/test_mine.py": "pass\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


def git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.com"]
    done = subprocess.run(["git", *who, *words], cwd=tree, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.strip()


def state(tree: Path) -> tuple[str, str, str]:
    """All that a refused command must leave alone."""
    return git(tree, "rev-parse", "HEAD"), git(tree, "status", "--porcelain"), git(tree, "symbolic-ref", "-q", "HEAD")


def contents(tree: Path) -> dict[str, bytes]:
    paths = [path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in paths}


def times(tree: Path) -> dict[str, int]:
    return {name: (tree / name).stat().st_mtime_ns for name in contents(tree)}


@pytest.fixture(autouse=True)
def generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree has no torchgen to run: stand in for it with a file that says what it would have been given."""

    def generate_added(native: NativeFolder, merged: list[MergedFile], overlay: Overlay) -> Path:
        assert (overlay.base / "torchgen/gen.py").is_file()
        assert (overlay.base / "torchgen/packaged/ATen/templates/Functions.h").is_file()
        assert (overlay.base / "torchgen/packaged/ATen/native/tags.yaml").is_file()
        text = repr([(overlay.folder / file.name).read_text() for file in merged])
        return write(overlay.folder, {"torch/_added_operators.py": text, "behind/torch/text.py": "derived = 1\n"})

    monkeypatch.setattr(apply_module, "generate_added", generate_added)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = write(tmp_path / "pytorch", FILES)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=upstream")
    return folder


@pytest.fixture
def patches(tmp_path: Path, tree: Path) -> Path:
    pin = f"""version: 1.2.0
source: {{git: {{repository: none, tag: v1.2.0, commit: {git(tree, "rev-parse", "HEAD")}}}}}
wheel: {{requirement: torch==1.2.0, sha256: {{}}}}
compiler: {{gxx: 11, standard: c++20}}
"""
    texts = {f"{name}.patch": text for name, text in PATCHES.items()}
    return write(tmp_path / "patches", {"pin.yaml": pin, "series": "\n".join(texts), **texts})


@pytest.fixture
def native(tmp_path: Path) -> Path:
    return write(tmp_path / "native", NATIVE)


def log(tree: Path, fork: Fork, form: str) -> list[str]:
    return git(tree, "log", "--reverse", f"--format={form}", f"{fork.base}..HEAD").splitlines()


def test_fork_is_commits_on_the_base(tree: Path, patches: Path, native: Path) -> None:
    base = git(tree, "rev-parse", "HEAD")
    fork = apply(tree, patches, native)
    assert fork.base == base == git(tree, "rev-parse", "refs/graft/base") == git(tree, "rev-parse", "main")
    assert fork.tip == git(tree, "rev-parse", "HEAD")
    assert log(tree, fork, "%s") == [
        "text: say two",
        "text: a second file",
        "native: add the files of a native folder",
        "native: describe the added operators",
        "torch: list the added operators",
    ]
    date = git(tree, "log", "-1", "--format=%ct", base)
    assert set(log(tree, fork, "%an %ae %at %cn %ce %ct")) == {
        f"Graft graft@localhost {date} Graft graft@localhost {date}"
    }
    assert git(tree, "status", "--porcelain") == ""


def test_files_are_where_pytorch_looks_for_them(tree: Path, patches: Path, native: Path) -> None:
    apply(tree, patches, native)
    expected = {name: text.encode() for name, text in FILES.items()}
    expected["torch/text.py"] = TEXT.replace("line 2\n", "line two\n").replace("line 30", "line thirty").encode()
    mark = b"\n# Added by Graft, from the native folder that this torch is built with.\n"
    expected["torch/text.py"] += mark + b"derived = 1\n\nadded = 2\n"
    expected["torch/stub.pyi.in"] += mark + b"x: int\n"
    expected["torch/nn/mine.py"] = b"mine = 3\n"
    expected["torch/second.py"] = b"second = 2  \n"
    for path in INSTALLED.rglob("*.py"):
        expected[f"torch/{path.relative_to(INSTALLED).as_posix()}"] = path.read_bytes()
    for name in ("Mine.cpp", "Mine.h", "cpu/MineKernel.cpp", "cuda/Mine.cu"):
        expected[f"aten/src/ATen/native/{name}"] = NATIVE[name].encode()
    yaml = {
        "aten/src/ATen/native/native_functions.yaml": "native_functions.yaml",
        "tools/autograd/derivatives.yaml": "derivatives.yaml",
    }
    for name, file in yaml.items():
        expected[name] += mark + NATIVE[file].encode()
    expected["torch/_added_operators.py"] = repr([expected[name].decode() for name in yaml]).encode()
    assert contents(tree) == expected


def test_applied_twice_is_the_same_commit_and_no_file_is_touched(tree: Path, patches: Path, native: Path) -> None:
    fork, before = apply(tree, patches, native), times(tree)
    assert apply(tree, patches, native) == fork
    assert times(tree) == before


def test_commit_ids_depend_on_nothing_but_the_input(
    tree: Path, patches: Path, native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, elsewhere = tmp_path / "clone", tmp_path / "elsewhere/native"
    git(tmp_path, "clone", "--quiet", str(tree), str(clone))
    shutil.copytree(native, elsewhere)
    fork = apply(tree, patches, native)
    git(clone, "config", "apply.whitespace", "fix")
    settings = write(tmp_path / "home", {".gitconfig": "[core]\nautocrlf = true\n"})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings / ".gitconfig"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Someone")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    assert apply(clone, patches, elsewhere) == fork
    assert contents(clone) == contents(tree)


def test_changed_folder_starts_again_from_the_base(tree: Path, patches: Path, native: Path) -> None:
    first, before = apply(tree, patches, native), times(tree)
    (native / "Mine.cpp").write_text("// another\n")
    second = apply(tree, patches, native)
    assert second.base == first.base
    assert second.tip != first.tip
    assert len(log(tree, second, "%s")) == 5
    assert (tree / "aten/src/ATen/native/Mine.cpp").read_text() == "// another\n"
    assert {name for name, time in times(tree).items() if time != before[name]} == {"aten/src/ATen/native/Mine.cpp"}
    write(native, {"Mine.cpp": NATIVE["Mine.cpp"]})
    assert apply(tree, patches, native) == first


def test_removed_operator_is_gone(tree: Path, patches: Path, native: Path) -> None:
    apply(tree, patches, native)
    for name in ("Mine.cpp", "Mine.h", "cpu/MineKernel.cpp", "derivatives.yaml"):
        (native / name).unlink()
    (native / "native_functions.yaml").write_text("- func: other(Tensor self) -> Tensor\n")
    apply(tree, patches, native)
    assert not list(tree.rglob("Mine*.cpp"))
    assert "mine" not in (tree / "aten/src/ATen/native/native_functions.yaml").read_text()
    assert (tree / "tools/autograd/derivatives.yaml").read_text() == FILES["tools/autograd/derivatives.yaml"]
    assert git(tree, "status", "--porcelain") == ""


def test_plain_folder_becomes_a_repository(tmp_path: Path, tree: Path, patches: Path, native: Path) -> None:
    folder = write(tmp_path / "plain", {**FILES, "build/made.o": "not a source"})
    before = times(folder)
    fork = apply(folder, patches, native)
    assert git(folder, "log", "-1", "--format=%s", fork.base) == "PyTorch 1.2.0, as it came"
    assert "build/made.o" not in git(folder, "ls-files")
    now = times(folder)
    assert {name for name in before if now[name] != before[name]} == {
        "torch/text.py",
        "torch/stub.pyi.in",
        "aten/src/ATen/native/native_functions.yaml",
        "tools/autograd/derivatives.yaml",
    }
    assert apply(folder, patches, native) == fork
    assert apply(write(tmp_path / "second", FILES), patches, native) == fork


def test_folder_of_another_version_is_refused_and_stays_a_folder(
    tmp_path: Path, tree: Path, patches: Path, native: Path
) -> None:
    folder = write(tmp_path / "plain", {**FILES, "version.txt": "1.2.01\n"})
    with pytest.raises(SourceError, match=r"version\.txt:1: this is PyTorch 1\.2\.01, but the pin is 1\.2\.0"):
        apply(folder, patches, native)
    assert not (folder / ".git").exists()


def test_patch_that_does_not_apply_is_named_with_its_hunk(tree: Path, patches: Path, native: Path) -> None:
    broken = PATCHES["say_two"].replace(" line 31", " line thirty-one")
    write(patches, {"say_two.patch": PATCHES["new_file"], "new_file.patch": broken})
    before, files = state(tree), contents(tree)
    with pytest.raises(PinError) as caught:
        apply(tree, patches, native)
    path = patches / "new_file.patch"
    number = broken.splitlines().index("@@ -29,3 +29,3 @@") + 1
    assert caught.value.what.splitlines() == [
        f"{path}:{number}: hunk 2 of torch/text.py does not fit",
        f"{path}: the patch does not apply",
    ]
    assert (state(tree), contents(tree)) == (before, files)
    # The command to go on with: the patches before it are there, what fits is applied, the rest is in a .rej file.
    command = caught.value.todo.split("`")[1]
    assert subprocess.run(command, shell=True, stderr=subprocess.DEVNULL, check=False).returncode == 1
    aside = tree.with_name("pytorch-new_file")
    assert (aside / "torch/second.py").is_file()
    assert "line two" in (aside / "torch/text.py").read_text()
    assert "line thirty-one" in (aside / "torch/text.py.rej").read_text()


def test_changed_tree_is_refused(tree: Path, patches: Path, native: Path) -> None:
    apply(tree, patches, native)
    (native / "Mine.cpp").write_text("// another\n")
    (tree / "torch/untouched.py").write_text("mine\n")
    before, files = git(tree, "rev-parse", "HEAD"), contents(tree)
    with pytest.raises(SourceError, match=r"1 file changed:\n +M torch/untouched\.py"):
        apply(tree, patches, native)
    assert (git(tree, "rev-parse", "HEAD"), contents(tree)) == (before, files)


def test_untracked_file_in_the_way_is_refused(tree: Path, patches: Path, native: Path) -> None:
    write(tree, {"torch/second.py": "mine\n", "notes.txt": "not in the way\n"})
    before, files = state(tree), contents(tree)
    with pytest.raises(SourceError, match=r"in the way:\n    torch/second\.py\n  next"):
        apply(tree, patches, native)
    assert (state(tree), contents(tree)) == (before, files)
    (tree / "torch/second.py").unlink()
    apply(tree, patches, native)
    assert (tree / "notes.txt").read_text() == "not in the way\n"


@pytest.mark.parametrize("last", [("read-tree", "-m"), ("update-ref", "HEAD"), ("update-ref", "-d")])
def test_checkout_that_was_interrupted_is_done_again(
    tree: Path, patches: Path, native: Path, monkeypatch: pytest.MonkeyPatch, last: tuple[str, str]
) -> None:
    """Interrupted before files are written, before HEAD is set, and before the mark is taken away."""
    with monkeypatch.context() as patched:
        real = Tree.git

        def interrupted(self: Tree, *arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
            if set(last) <= set(arguments):
                raise KeyboardInterrupt
            return real(self, *arguments, **more)

        patched.setattr(Tree, "git", interrupted)
        with pytest.raises(KeyboardInterrupt):
            apply(tree, patches, native)
    assert git(tree, "for-each-ref", MOVING_REF)
    fork = apply(tree, patches, native)
    assert git(tree, "rev-parse", "HEAD") == fork.tip
    assert git(tree, "status", "--porcelain") == ""
    assert not git(tree, "for-each-ref", MOVING_REF)


def test_checkout_that_was_killed_half_way_is_taken_back(tree: Path, patches: Path, native: Path) -> None:
    fork = apply(tree, patches, native)
    git(tree, "checkout", "--quiet", "--detach", fork.base)
    git(tree, "update-ref", MOVING_REF, fork.tip)
    (tree / ".git/index.lock").touch()
    write(tree, {"torch/second.py": "sec", "torch/text.py": "line"})
    write(tree, {"torch/untouched.py": "mine\n"})
    with pytest.raises(SourceError, match=r"M torch/untouched\.py"):
        apply(tree, patches, native)
    assert (tree / "torch/untouched.py").read_text() == "mine\n"
    write(tree, {"torch/untouched.py": FILES["torch/untouched.py"]})
    assert apply(tree, patches, native) == fork
    assert git(tree, "status", "--porcelain") == ""


def test_another_commit_than_the_pin_s_is_refused(tree: Path, patches: Path, native: Path) -> None:
    write(tree, {"torch/untouched.py": "mine\n"})
    git(tree, "commit", "--quiet", "--all", "--message=mine")
    before = state(tree)
    with pytest.raises(SourceError, match="but the pin is") as caught:
        apply(tree, patches, native)
    assert "on top that are not Graft's" in caught.value.cause
    assert state(tree) == before


def test_commit_on_top_of_the_fork_is_not_thrown_away(tree: Path, patches: Path, native: Path) -> None:
    apply(tree, patches, native)
    write(tree, {"torch/untouched.py": "mine\n"})
    git(tree, "commit", "--quiet", "--all", "--message=mine")
    for command in (lambda: apply(tree, patches, native), lambda: export(tree, tree.parent / "out")):
        with pytest.raises(SourceError):
            command()
    assert git(tree, "log", "-1", "--format=%s") == "mine"


def test_native_file_that_upstream_has_is_refused(tree: Path, patches: Path, native: Path) -> None:
    write(native, {"Add.cpp": "// mine\n"})
    before = state(tree)
    with pytest.raises(UsageError, match=r"native/Add\.cpp: PyTorch has this file, aten/src/ATen/native/Add\.cpp"):
        apply(tree, patches, native)
    assert state(tree) == before
    assert (tree / "aten/src/ATen/native/Add.cpp").read_text() == "// add\n"


def test_source_in_a_folder_that_is_not_compiled_is_refused(tree: Path, patches: Path, native: Path) -> None:
    write(native, {"deep/er/Mine.cpp": "", "deep/Header.h": "", "x/Fine.cpp": "", "cuda/Mine.cpp": ""})
    with pytest.raises(OperatorError) as caught:
        apply(tree, patches, native)
    assert caught.value.what.splitlines() == [
        f"{native}/cuda/Mine.cpp: PyTorch's build compiles no .cpp file in native/cuda",
        f"{native}/deep/er/Mine.cpp: PyTorch's build compiles no .cpp file in native/deep/er",
    ]
    assert "native, native/cpu, native/cuda, native/x" in caught.value.cause


def test_patch_may_have_another_folder_compiled(tree: Path, patches: Path, native: Path) -> None:
    write(native, {"deep/Mine.cpp": ""})
    more = """Subject: cmake: compile native/deep

--- a/aten/src/ATen/CMakeLists.txt
+++ b/aten/src/ATen/CMakeLists.txt
@@ -1,3 +1,4 @@
 file(GLOB native_cpp "native/*.cpp")
+file(GLOB deep "native/deep/*.cpp")
 file(GLOB native_cuda_cu "native/cuda/*.cu")
 file(GLOB_RECURSE base_cpp "core/*.cpp")
"""
    write(patches, {"more.patch": more, "series": "more.patch\nsay_two.patch\nnew_file.patch\n"})
    apply(tree, patches, native)
    assert (tree / "aten/src/ATen/native/deep/Mine.cpp").is_file()
    # Without the patch it is refused, although the files checked out still have it.
    (patches / "more.patch").unlink()
    write(patches, {"series": "say_two.patch\nnew_file.patch\n"})
    with pytest.raises(OperatorError, match=r"no \.cpp file in native/deep"):
        apply(tree, patches, native)


def test_folder_that_is_no_pytorch_is_refused(tmp_path: Path, patches: Path, native: Path) -> None:
    with pytest.raises(UsageError, match="no PyTorch source tree"):
        apply(native, patches, native)


def test_export_is_what_git_am_makes_the_same_commits_of(
    tree: Path, patches: Path, native: Path, tmp_path: Path
) -> None:
    fork = apply(tree, patches, native)
    mails = export(tree, tmp_path / "out")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(tree), str(clone))
    git(clone, "checkout", "--quiet", fork.base)
    ours = ["-c", "user.name=Graft", "-c", "user.email=graft@localhost"]
    git(clone, *ours, "am", "--quiet", "--keep-cr", "--committer-date-is-author-date", *map(str, mails))
    assert git(clone, "rev-parse", "HEAD") == fork.tip


def test_export_is_the_same_bytes_and_drops_what_is_no_longer(
    tree: Path, patches: Path, native: Path, tmp_path: Path
) -> None:
    out = write(tmp_path / "out", {"0009-theirs.patch": "From: Someone\n"})
    apply(tree, patches, native)
    export(tree, out)
    git(tree, "config", "diff.noprefix", "true")
    git(tree, "config", "format.signature", "a signature")
    first, before = contents(out), times(out)
    export(tree, out)
    assert (contents(out), times(out)) == (first, before)
    (patches / "new_file.patch").unlink()
    (patches / "series").write_text("say_two.patch\n")
    apply(tree, patches, native)
    mails = export(tree, out)
    assert {path.name for path in out.iterdir()} == {"0009-theirs.patch", *(mail.name for mail in mails)}
    assert len(mails) == 4


def test_export_without_a_fork_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no fork"):
        export(tree, tmp_path / "out")
    assert not os.path.lexists(tmp_path / "out")


def test_header_of_a_patch_is_the_message() -> None:
    assert commit_message(PATCHES["say_two"]) == (
        "text: say two\n\nWhy: a test, which goes\n over two lines\nKind: intended difference\n"
    )
    assert commit_message("Subject: only that\n\n--- a/x\n+++ b/x\n") == "only that\n"
