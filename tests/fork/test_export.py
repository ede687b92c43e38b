"""The fork as patches, from which ``git am`` makes the same commits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.core.layout import Layout
from graft.fork.apply import apply
from graft.fork.export import export
from graft.fork.stack import commit_message
from helpers import git, write
from small_tree import PATCHES, contents, times


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


def test_export_without_a_fork_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no fork is checked out"):
        export(tree, tmp_path / "out")
    assert not os.path.lexists(tmp_path / "out")


def test_header_of_a_patch_is_the_message() -> None:
    assert commit_message(PATCHES["say_two"]) == (
        "text: say two\n\nWhy: a test, which goes\n over two lines\nKind: intended difference\n"
    )
    assert commit_message("Subject: only that\n\n--- a/x\n+++ b/x\n") == "only that\n"
