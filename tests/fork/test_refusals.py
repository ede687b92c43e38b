"""What ``apply`` rejects, and that the tree is unchanged."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from graft.core.errors import GraftError, UsageError
from graft.core.layout import Layout
from graft.fork.apply import apply
from graft.fork.export import export
from helpers import git, write
from small_tree import FILES, PATCHES, contents, state


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
