"""The fork in a checkout: commits on the base, the same for the same input; what is refused changes nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graft.core.errors import GraftError, UsageError
from graft.core.layout import REPOSITORY, Layout
from graft.fork.apply import apply
from graft.fork.checkout import MOVING_REF
from graft.fork.export import export
from graft.fork.tree import SourceTree
from helpers import Capture, Patch, git, write
from small_tree import DESCRIPTION, FILES, NATIVE, PATCHES, TEXT, commit_upstream, contents, log, state, times

# The files that Graft itself adds to every torch.
INSTALLED = REPOSITORY / "scripts/graft/compose/appended"


def test_fork_is_commits_on_the_base(tree: Path, layout: Layout) -> None:
    base = git(tree, "rev-parse", "HEAD")
    fork = apply(tree, layout)
    assert fork.base == base == git(tree, "rev-parse", "refs/graft/base") == git(tree, "rev-parse", "main")
    assert fork.tip == git(tree, "rev-parse", "HEAD")
    assert log(tree, fork, "%s") == [
        "text: say two",
        "text: a second file",
        "native: add the files of a native folder",
        "native: describe the added operators",
        "torch: add the Python files of a native folder",
        "torch: list the added operators",
    ]
    date = git(tree, "log", "-1", "--format=%ct", base)
    assert set(log(tree, fork, "%an %ae %at %cn %ce %ct")) == {
        f"Graft graft@localhost {date} Graft graft@localhost {date}"
    }
    assert git(tree, "status", "--porcelain") == ""


def test_patch_for_debian_s_sources_is_left_out_elsewhere(
    tree: Path, layout: Layout, patches: Path, capsys: Capture
) -> None:
    """Without it such a patch may not apply: what it changes are Debian's changes."""
    text = PATCHES["say_two"].replace("Kind: intended difference\n", "Kind: needed to build\nFor: Debian's sources\n")
    write(patches, {"say_two.patch": text.replace("-line_2\n", "-line_of_Debian\n")})
    fork = apply(tree, layout)
    assert log(tree, fork, "%s")[0] == "text: a second file"
    assert f"left out, since {tree} is not Debian's source package: say_two.patch\n" in capsys.readouterr().err
    write(patches, {"say_two.patch": text})
    git(tree, "checkout", "--quiet", "main")
    commit_upstream(tree, patches, {"debian/changelog": "pytorch (1.2.0-1)\n"})
    assert log(tree, apply(tree, layout), "%s")[:2] == ["text: say two", "text: a second file"]


def test_files_are_where_pytorch_looks_for_them(tree: Path, layout: Layout) -> None:
    apply(tree, layout)
    expected = {name: text.encode() for name, text in FILES.items()}
    expected["torch/text.py"] = TEXT.replace("line_2\n", "line_two\n").replace("line_30", "line_thirty").encode()
    mark = b"\n# Added by Graft, from the native folder that this torch is built with.\n"
    expected["torch/text.py"] += mark + b"added = 2\n"
    expected["torchgen/gen.py"] += mark + b"derived = 1\n"
    expected["tools/autograd/lists.py"] += mark + b"derived = 2\n"
    expected["torch/stub.pyi.in"] += mark + b"x: int\n"
    expected["torch/nn/mine.py"] = b"mine = 3\n"
    expected["torch/_torch_docs.py"] = b'add_docstr(torch.mine, r"""\nmine(input)\n\nWhat it does.\n""")\n\nadded = 3\n'
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
    expected["torchgen/merged.py"] = repr([expected[name].decode() for name in yaml]).encode()
    expected["torch/_added_operators.py"] = DESCRIPTION.module().encode()
    assert contents(tree) == expected


def test_commit_ids_depend_on_nothing_but_the_input(
    tree: Path, layout: Layout, native: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    clone, elsewhere = tmp_path / "clone", tmp_path / "elsewhere/native"
    git(tmp_path, "clone", "--quiet", str(tree), str(clone))
    shutil.copytree(native, elsewhere)
    fork = apply(tree, layout)
    git(clone, "config", "apply.whitespace", "fix")
    settings = write(tmp_path / "home", {".gitconfig": "[core]\nautocrlf = true\n"})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings / ".gitconfig"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Someone")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    assert apply(clone, replace(layout, natives=(elsewhere,))) == fork
    assert contents(clone) == contents(tree)


def test_same_folder_touches_no_file_and_another_starts_from_the_base(tree: Path, layout: Layout, native: Path) -> None:
    first, before = apply(tree, layout), times(tree)
    assert apply(tree, layout) == first and times(tree) == before
    (native / "Mine.cpp").write_text("// another\n")
    second = apply(tree, layout)
    assert second.base == first.base
    assert second.tip != first.tip
    assert len(log(tree, second, "%s")) == 6
    assert (tree / "aten/src/ATen/native/Mine.cpp").read_text() == "// another\n"
    assert {name for name, time in times(tree).items() if time != before[name]} == {"aten/src/ATen/native/Mine.cpp"}
    write(native, {"Mine.cpp": NATIVE["Mine.cpp"]})
    assert apply(tree, layout) == first


def test_removed_operator_is_gone(tree: Path, layout: Layout, native: Path) -> None:
    apply(tree, layout)
    for name in ("Mine.cpp", "Mine.h", "cpu/MineKernel.cpp", "derivatives.yaml"):
        (native / name).unlink()
    (native / "native_functions.yaml").write_text("- func: other(Tensor self) -> Tensor\n")
    apply(tree, layout)
    assert not list(tree.rglob("Mine*.cpp"))
    assert "mine" not in (tree / "aten/src/ATen/native/native_functions.yaml").read_text()
    assert (tree / "tools/autograd/derivatives.yaml").read_text() == FILES["tools/autograd/derivatives.yaml"]
    assert git(tree, "status", "--porcelain") == ""


def test_plain_folder_becomes_a_repository(tmp_path: Path, tree: Path, layout: Layout) -> None:
    folder = write(tmp_path / "plain", {**FILES, "build/made.o": "not a source"})
    before = times(folder)
    fork = apply(folder, layout)
    assert git(folder, "log", "-1", "--format=%s", fork.base) == "PyTorch 1.2.0, as it came"
    assert "build/made.o" not in git(folder, "ls-files")
    now = times(folder)
    assert {name for name in before if now[name] != before[name]} == {
        "torch/text.py",
        "torch/stub.pyi.in",
        "torchgen/gen.py",
        "tools/autograd/lists.py",
        "aten/src/ATen/native/native_functions.yaml",
        "tools/autograd/derivatives.yaml",
    }
    assert apply(folder, layout) == fork
    assert apply(write(tmp_path / "second", FILES), layout) == fork


@pytest.mark.parametrize("last", [("read-tree", "-m"), ("update-ref", "HEAD"), ("update-ref", "-d")])
def test_checkout_that_was_interrupted_is_done_again(
    tree: Path, layout: Layout, monkeypatch: Patch, last: tuple[str, str]
) -> None:
    """Interrupted before files are written, before HEAD is set, and before the mark is deleted."""
    with monkeypatch.context() as patched:
        real = SourceTree.git

        def interrupted(self: SourceTree, *arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
            if set(last) <= set(arguments):
                raise KeyboardInterrupt
            return real(self, *arguments, **more)

        patched.setattr(SourceTree, "git", interrupted)
        with pytest.raises(KeyboardInterrupt):
            apply(tree, layout)
    assert git(tree, "for-each-ref", MOVING_REF)
    fork = apply(tree, layout)
    assert git(tree, "rev-parse", "HEAD") == fork.tip
    assert git(tree, "status", "--porcelain") == ""
    assert not git(tree, "for-each-ref", MOVING_REF)


def test_checkout_that_was_killed_half_way_is_taken_back(tree: Path, layout: Layout) -> None:
    fork = apply(tree, layout)
    git(tree, "checkout", "--quiet", "--detach", fork.base)
    git(tree, "update-ref", MOVING_REF, fork.tip)
    (tree / ".git/index.lock").touch()
    write(tree, {"torch/second.py": "sec", "torch/text.py": "line"})
    write(tree, {"torch/untouched.py": "mine\n"})
    with pytest.raises(UsageError, match=r"M torch/untouched\.py"):
        apply(tree, layout)
    assert (tree / "torch/untouched.py").read_text() == "mine\n"
    write(tree, {"torch/untouched.py": FILES["torch/untouched.py"]})
    assert apply(tree, layout) == fork
    assert git(tree, "status", "--porcelain") == ""


@contextmanager
def refused(tree: Path, error: type[GraftError], message: str) -> Iterator[pytest.ExceptionInfo[GraftError]]:
    """Check that the body raises an error, and changes nothing."""
    before, files = state(tree), contents(tree)
    with pytest.raises(error, match=message) as caught:
        yield caught
    assert (state(tree), contents(tree)) == (before, files)


def test_folder_of_another_version_is_refused_and_stays_a_folder(tmp_path: Path, tree: Path, layout: Layout) -> None:
    folder = write(tmp_path / "plain", {**FILES, "version.txt": "1.2.01\n"})
    with pytest.raises(UsageError, match=r"version\.txt:1: this is PyTorch 1\.2\.01, but the pin is 1\.2\.0"):
        apply(folder, layout)
    assert not (folder / ".git").exists()


def test_patch_that_does_not_apply_is_named_with_its_hunk(tree: Path, layout: Layout, patches: Path) -> None:
    broken = PATCHES["say_two"].replace(" line_31", " line_thirty_one")
    write(patches, {"say_two.patch": PATCHES["new_file"], "new_file.patch": broken})
    with refused(tree, UsageError, "the patch does not apply") as caught:
        apply(tree, layout)
    path = patches / "new_file.patch"
    number = broken.splitlines().index("@@ -29,3 +29,3 @@") + 1
    assert caught.value.what.splitlines() == [
        f"{path}:{number}: hunk 2 of torch/text.py does not apply",
        f"{path}: the patch does not apply",
    ]
    # The command to continue with: earlier patches are there, matching hunks are applied, the rest is in a .rej file.
    command = caught.value.todo.split("`")[1]
    assert subprocess.run(command, shell=True, stderr=subprocess.DEVNULL, check=False).returncode == 1
    aside = tree.with_name("pytorch-new_file")
    assert (aside / "torch/second.py").is_file()
    assert "line_two" in (aside / "torch/text.py").read_text()
    assert "line_thirty_one" in (aside / "torch/text.py.rej").read_text()


def test_changed_tree_is_refused(tree: Path, layout: Layout, native: Path) -> None:
    apply(tree, layout)
    write(native, {"Mine.cpp": "// another\n"})
    write(tree, {"torch/untouched.py": "mine\n"})
    with refused(tree, UsageError, r"1 file changed:\n +M torch/untouched\.py"):
        apply(tree, layout)


def test_untracked_file_in_the_way_is_refused(tree: Path, layout: Layout) -> None:
    write(tree, {"torch/second.py": "mine\n", "notes.txt": "not in the way\n"})
    with refused(tree, UsageError, r"would be overwritten:\n    torch/second\.py\n  next"):
        apply(tree, layout)
    (tree / "torch/second.py").unlink()
    apply(tree, layout)
    assert (tree / "notes.txt").read_text() == "not in the way\n"


def test_commit_that_is_not_the_pin_s_is_refused(tree: Path, layout: Layout) -> None:
    write(tree, {"torch/untouched.py": "mine\n"})
    git(tree, "commit", "--quiet", "--all", "--message=mine")
    with refused(tree, UsageError, "but the pin is") as caught:
        apply(tree, layout)
    assert "other commits on top" in caught.value.cause


def test_commit_on_top_of_the_fork_is_not_thrown_away(tree: Path, layout: Layout) -> None:
    apply(tree, layout)
    write(tree, {"torch/untouched.py": "mine\n"})
    git(tree, "commit", "--quiet", "--all", "--message=mine")
    for command in (lambda: apply(tree, layout), lambda: export(tree, tree.parent / "out")):
        with refused(tree, UsageError, "but the pin is|no fork is checked out"):
            command()


def test_native_file_that_upstream_has_is_refused(tree: Path, layout: Layout, native: Path) -> None:
    write(native, {"Add.cpp": "// mine\n"})
    with refused(tree, UsageError, r"native/Add\.cpp: PyTorch has this file, aten/src/ATen/native/Add\.cpp"):
        apply(tree, layout)


def test_folder_that_is_no_pytorch_is_refused(layout: Layout, native: Path) -> None:
    with pytest.raises(UsageError, match="not a PyTorch source tree"):
        apply(native, layout)
