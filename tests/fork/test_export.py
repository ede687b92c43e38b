"""The fork as patches: ``git am`` makes the same commits of them, and ``make import`` the same native folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from graft.core.layout import Layout
from graft.fork.apply import apply
from graft.fork.export import export
from graft.fork.stack import commit_message
from helpers import git, write
from small_tree import NATIVE, PATCHES, commit_upstream, contents, import_into, times
from test_apply_replacing import ADD, ENTRY, STUB, TREE


def test_export_is_what_git_am_makes_the_same_commits_of(tree: Path, layout: Layout, tmp_path: Path) -> None:
    fork = apply(tree, layout)
    mails = export(tree, tmp_path / "out")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(tree), str(clone))
    git(clone, "checkout", "--quiet", fork.base)
    ours = ["-c", "user.name=Graft", "-c", "user.email=graft@localhost"]
    git(clone, *ours, "am", "--quiet", "--keep-cr", "--committer-date-is-author-date", *map(str, mails))
    assert git(clone, "rev-parse", "HEAD") == fork.tip


def test_export_is_the_same_bytes_and_drops_what_is_no_longer(
    tree: Path, layout: Layout, patches: Path, tmp_path: Path
) -> None:
    out = write(tmp_path / "out", {"0009-theirs.patch": "From: Someone\n"})
    apply(tree, layout)
    export(tree, out)
    git(tree, "config", "diff.noprefix", "true")
    git(tree, "config", "format.signature", "a signature")
    first, before = contents(out), times(out)
    export(tree, out)
    assert (contents(out), times(out)) == (first, before)
    (patches / "new_file.patch").unlink()
    (patches / "series").write_text("say_two.patch\n")
    apply(tree, layout)
    mails = export(tree, out)
    assert {path.name for path in out.iterdir()} == {"0009-theirs.patch", *(mail.name for mail in mails)}
    assert len(mails) == 5


def test_header_of_a_patch_is_the_message() -> None:
    assert commit_message(PATCHES["say_two"]) == (
        "text: say two\n\nWhy: a test, which goes\n over two lines\nKind: intended difference\n"
    )
    assert commit_message("Subject: only that\n\n--- a/x\n+++ b/x\n") == "only that\n"


REPLACING = {
    "native_functions.yaml": f"{ENTRY}\n# Mine.\n- func: mine(Tensor self) -> Tensor\n",
    "derivatives.yaml": "- name: add(Tensor self) -> Tensor\n  self: grad * 2\n  replace: true\n",
    "Add.cpp": ADD.replace("return self", "return +self"),
    "cpu/AddKernel.cpp": STUB.replace("{}", "{ ours(); }", 1),
}


@pytest.fixture
def upstream(tree: Path, patches: Path) -> Path:
    return commit_upstream(tree, patches, TREE)


def imported(tree: Path, layout: Layout, folder: Path) -> dict[str, bytes]:
    """Return what `make import` writes of the patches that `make export` writes of a fork."""
    fork = apply(tree, layout)
    mails = export(tree, folder / "patches")
    git(tree, "checkout", "--quiet", "-b", "theirs", fork.base)
    git(tree, "-c", "user.name=They", "-c", "user.email=they@x.org", "am", "--quiet", "--keep-cr", *map(str, mails))
    return import_into(folder / "imported", tree, branch="theirs")


def test_folder_of_new_operators(upstream: Path, layout: Layout, native: Path, tmp_path: Path) -> None:
    """But for tests, which no tree has."""
    expected = {name: text.encode() for name, text in NATIVE.items() if not name.startswith("tests/")}
    assert imported(upstream, layout, tmp_path) == expected


def test_folder_that_replaces(upstream: Path, layout: Layout, native: Path, tmp_path: Path) -> None:
    shutil.rmtree(native)
    write(native, REPLACING)
    found = imported(upstream, layout, tmp_path)
    lists = {name for name in REPLACING if name.endswith(".yaml")}
    assert {name: found[name].decode() for name in found.keys() - lists} == {
        name: text for name, text in REPLACING.items() if name not in lists
    }
    assert {name: yaml.safe_load(found[name]) for name in lists} == {
        name: yaml.safe_load(REPLACING[name]) for name in lists
    }
