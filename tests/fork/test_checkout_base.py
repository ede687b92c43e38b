"""The commit that a working tree is compared with, and the lines to type where it is not there."""

from __future__ import annotations

import re
import shlex
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from graft.checkout.base import Base, changed_upstream, find_base
from graft.checkout.repository import Repository
from graft.core.errors import UsageError
from helpers import Patch, git, program
from small_tree import FILES, commit, repository

ADD = "aten/src/ATen/native/Add.cpp"
PYTHON = "torch/text.py"
NIGHTLY = "1.3.0.dev20240511+cpu"


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: Patch) -> Path:
    """PyTorch: main with three commits, the tag v1.2.0 on a branch that leaves it at the first, and a nightly of the
    second, which is on no branch.
    """
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2024-05-10T12:00:00+0000")
    tree = repository(tmp_path / "upstream", FILES)
    git(tree, "checkout", "--quiet", "-b", "release/1.2")
    commit(tree, {"torch/picked.py": ""})
    git(tree, "tag", "v1.2.0")
    git(tree, "checkout", "--quiet", "main")
    second = commit(tree, {ADD: "// upstream\n", "version.txt": "1.3.0a0+git1\n"})
    git(tree, "tag", "nightly", git(tree, "commit-tree", "HEAD^{tree}", "-m", f"2024-05-11 nightly release ({second})"))
    commit(tree, {"torch/third.py": ""})
    git(tree, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(tree, "config", "uploadpack.allowFilter", "true")
    return tree


@pytest.fixture
def checkout(tmp_path: Path, upstream: Path) -> Path:
    git(tmp_path, "clone", "--quiet", f"file://{upstream}", "checkout")
    return tmp_path / "checkout"


def clone(upstream: Path, *words: str) -> Path:
    target = upstream.parent / "other"
    git(upstream, "clone", "--quiet", *words, f"file://{upstream}", str(target))
    return target


def found(tree: Path, commit: str, version: str = "1.2.0+cpu") -> Base:
    return find_base(Repository(tree), commit, version)


def test_commit_that_is_asked_for(checkout: Path) -> None:
    """For the last commit of a stack, a branch that left another one, a repository without a remote."""
    first = git(checkout, "rev-list", "--max-parents=0", "HEAD")
    last = commit(checkout, {PYTHON: "mine\n"})
    for name in (first, f"{last}~3", "origin/main~2"):
        base = find_base(Repository(checkout), first, "1.2.0+cpu", name)
        assert base.commit == base.wheel == first
        apart = f"0 commits ahead of the installed torch ({first[:12]}), 0 behind"
        assert base.said == [f"compared with {first[:12]}, as BASE={name} says: {apart}"]
    base = find_base(Repository(checkout), "0" * 40, "1.2.0+cpu", "HEAD")
    assert (base.commit, base.wheel) == (last, "")
    with pytest.raises(UsageError, match=r"BASE: .* has no commit no-such-branch") as caught:
        find_base(Repository(checkout), first, "1.2.0+cpu", "no-such-branch")
    assert "BASE=HEAD~1" in caught.value.todo


def type_line(words: str) -> None:
    """Type the command for git in a text."""
    line = re.search(r"git -C [^`]*?(?=$|`| tells)", words)
    assert line, words
    subprocess.run(["git", "-c", "protocol.file.allow=always", *shlex.split(line[0])[1:]], check=True)


def at(tree: Path, name: str) -> str:
    return git(tree, "rev-parse", f"{name}^{{commit}}")


def test_head_that_descends_from_the_release(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "-b", "fix", "v1.2.0")
    wheel = at(checkout, "HEAD")
    commit(checkout, {PYTHON: "own\n"})
    assert found(checkout, wheel) == Base(wheel, wheel, [])
    assert Repository(checkout).changed(wheel) == {PYTHON: "M"}


def test_head_that_does_not_descend_from_the_release(checkout: Path) -> None:
    wheel, main = at(checkout, "v1.2.0"), at(checkout, "origin/main")
    assert found(checkout, wheel).commit == main and Repository(checkout).changed(main) == {}
    commit(checkout, {PYTHON: "own\n", ADD: "// own\n"})
    base = found(checkout, wheel)
    assert (base.commit, base.wheel) == (main, wheel)
    assert base.said == [
        f"compared with {main[:12]} of origin: 2 commits ahead of the installed torch ({wheel[:12]}), 1 behind",
        "the nightly nearest to it fits better: pip install --pre torch==1.3.0.dev20240511 "
        "--index-url https://download.pytorch.org/whl/nightly/cpu",
    ]
    changed = Repository(checkout).changed(base.commit)
    assert changed == {PYTHON: "M", ADD: "M"}
    assert changed_upstream(Repository(checkout), base, changed) == [ADD]


def test_nightly_is_of_the_commit_that_its_subject_names(checkout: Path) -> None:
    """Its own is on no branch. Upstream's later commits count as changes, and this is said."""
    nightly, named = at(checkout, "nightly"), at(checkout, "origin/main~1")
    git(checkout, "checkout", "--quiet", "-b", "fix", named)
    commit(checkout, {PYTHON: "own\n"})
    assert found(checkout, nightly, NIGHTLY) == Base(named, named, [])
    git(checkout, "checkout", "--quiet", "main")
    base = found(checkout, nightly, NIGHTLY)
    assert (base.commit, base.wheel) == (named, named)
    assert base.said == [f"1 commit of origin since the installed torch ({named[:12]}) counts as this checkout's, too"]
    assert changed_upstream(Repository(checkout), base, [ADD]) == []


def test_nightly_that_is_newer_than_head(checkout: Path) -> None:
    named = at(checkout, "origin/main~1")
    git(checkout, "checkout", "--quiet", "-b", "fix", "origin/main~2")
    first = at(checkout, "HEAD")
    base = found(checkout, at(checkout, "nightly"), NIGHTLY)
    assert (base.commit, base.wheel) == (first, named)
    assert base.said[0] == (
        f"compared with {first[:12]} of origin: 0 commits ahead of the installed torch ({named[:12]}), 1 behind"
    )
    assert changed_upstream(Repository(checkout), base, [ADD, PYTHON]) == [ADD]


def test_head_on_the_nightly_itself(upstream: Path) -> None:
    """As a shallow clone of the branch ``nightly`` is: it lacks the commit that the subject names."""
    tree = clone(upstream, "--depth=1", "--branch=nightly")
    nightly = at(tree, "HEAD")
    commit(tree, {PYTHON: "own\n"})
    assert found(tree, nightly, NIGHTLY) == Base(nightly, nightly, [])


def test_signature_of_a_nightly_is_not_verified(tmp_path: Path, checkout: Path) -> None:
    raw = git(checkout, "cat-file", "commit", "nightly")
    signed = raw.replace("\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n -----END PGP SIGNATURE-----\n\n", 1)
    words = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    done = subprocess.run(words, cwd=checkout, input=signed, capture_output=True, text=True, check=True)
    git(checkout, "config", "gpg.program", str(program(tmp_path / "gpg", f"touch {tmp_path}/marker")))
    git(checkout, "config", "log.showSignature", "true")
    assert found(checkout, done.stdout.strip(), NIGHTLY).commit == at(checkout, "origin/main~1")
    assert not (tmp_path / "marker").exists()
    git(checkout, "log", "--max-count=1", done.stdout.strip())
    assert (tmp_path / "marker").exists()


def test_stale_main_of_a_fork_does_not_count(tmp_path: Path, upstream: Path) -> None:
    wheel = at(upstream, "v1.2.0")
    git(upstream, "branch", "stale", "main~2")
    git(tmp_path, "clone", "--quiet", "--bare", f"file://{upstream}", "fork")
    git(tmp_path / "fork", "branch", "--force", "main", "stale")
    git(tmp_path, "clone", "--quiet", f"file://{tmp_path}/fork", "clone")
    tree = tmp_path / "clone"
    git(tree, "remote", "add", "upstream", f"file://{upstream}")
    git(tree, "fetch", "--quiet", "upstream")
    git(tree, "checkout", "--quiet", "-b", "fix", "upstream/main")
    commit(tree, {PYTHON: "own\n"})
    base = found(tree, wheel)
    assert base.commit == at(upstream, "main")
    assert "of upstream/main" in base.said[0]
    git(tree, "remote", "remove", "upstream")
    assert found(tree, wheel).commit == at(upstream, "stale")


def test_default_branch_with_another_name(tmp_path: Path, upstream: Path) -> None:
    git(upstream, "branch", "--move", "main", "viable")
    tree = clone(upstream)
    commit(tree, {PYTHON: "own\n"})
    assert found(tree, at(tree, "v1.2.0")).commit == at(upstream, "viable")
    git(upstream, "branch", "--move", "viable", "master")
    git(tree, "fetch", "--quiet", "--prune")
    git(tree, "symbolic-ref", "--delete", "refs/remotes/origin/HEAD")
    assert "of origin/master" in found(tree, at(tree, "v1.2.0")).said[0]


@pytest.mark.parametrize("words", [["--single-branch", "--no-tags"], ["--depth=1"]])
def test_missing_commit_of_the_installed_torch(upstream: Path, words: list[str]) -> None:
    """The build goes on, and the line makes known what upstream changed since."""
    tree, wheel = clone(upstream, *words), at(upstream, "v1.2.0")
    commit(tree, {ADD: "// own\n"})
    base = found(tree, wheel)
    assert (base.commit, base.wheel) == (at(upstream, "main"), "")
    assert changed_upstream(Repository(tree), base, [ADD]) == []
    type_line(base.said[0])
    again = found(tree, wheel)
    assert (again.commit, again.wheel) == (base.commit, wheel)
    assert "not known" not in again.said[0]
    assert changed_upstream(Repository(tree), again, [ADD]) == [ADD]
    # A clone with all of its history keeps it.
    assert Repository(tree).is_shallow() == ("--depth=1" in words)


def test_shallow_clone_of_a_branch(upstream: Path) -> None:
    """Nothing that HEAD descends from is there. The installed torch's commit is next."""
    wheel = at(upstream, "v1.2.0")
    git(upstream, "checkout", "--quiet", "-b", "fix", "main")
    commit(upstream, {PYTHON: "own\n"})
    git(upstream, "checkout", "--quiet", "main")
    tree = clone(upstream, "--depth=1", "--branch=fix")
    with pytest.raises(UsageError, match="the commit to compare with is not there") as error:
        found(tree, wheel)
    assert "--depth=1" in error.value.todo
    type_line(error.value.todo)
    base = found(tree, wheel)
    assert (base.commit, base.wheel) == (wheel, wheel)
    assert Repository(tree).changed(wheel).keys() == {ADD, PYTHON, "torch/picked.py", "torch/third.py", "version.txt"}
    type_line(base.said[0])
    base = found(tree, wheel)
    assert (base.commit, base.wheel) == (at(upstream, "main"), wheel)
    assert Repository(tree).changed(base.commit) == {PYTHON: "M"}


@pytest.mark.parametrize("git_version", ["v1.2.0", ""])
def test_clone_of_a_single_branch(upstream: Path, git_version: str) -> None:
    git(upstream, "checkout", "--quiet", "-b", "fix", "main")
    commit(upstream, {PYTHON: "own\n"})
    git(upstream, "checkout", "--quiet", "main")
    tree = clone(upstream, "--single-branch", "--branch=fix")
    wheel = git_version and at(upstream, git_version)
    with pytest.raises(UsageError, match="the commit to compare with is not there") as error:
        found(tree, wheel)
    type_line(error.value.todo)
    assert found(tree, wheel).commit == at(upstream, "main")


@pytest.mark.parametrize("kind", ["blob:none", "tree:0"])
def test_partial_clone(upstream: Path, kind: str) -> None:
    tree, wheel = clone(upstream, f"--filter={kind}"), at(upstream, "v1.2.0")
    commit(tree, {ADD: "// own\n"})
    base = found(tree, wheel)
    assert (base.commit, base.wheel, len(base.said)) == (at(upstream, "main"), wheel, 2)
    if kind == "tree:0":
        with pytest.raises(UsageError, match="may lack its list of files") as error:
            changed_upstream(Repository(tree), base, [ADD])
        type_line(error.value.todo)
    assert changed_upstream(Repository(tree), base, [ADD]) == [ADD]


def test_torch_that_does_not_say_its_commit(checkout: Path) -> None:
    base = found(checkout, "Unknown")
    assert (base.commit, base.wheel) == (at(checkout, "origin/main"), "")
    assert base.said[0].endswith("is not known: it does not say which commit it was built from")


@pytest.mark.parametrize(
    ("written", "version", "expected"),
    [
        pytest.param("2024-05-11T09:59:00+0000", "1.2.0", ["dev20240511", "cpu"], id="before the cut"),
        pytest.param("2024-05-11T10:01:00+0000", "1.2.0+cu128", ["dev20240512", "cu128"], id="after it"),
        pytest.param("2024-05-11T23:00:00-0700", "1.2.0+debian", ["dev20240512", "cpu"], id="another time zone"),
        pytest.param("2024-05-11T09:59:00+0000", NIGHTLY, None, id="it is installed"),
    ],
)
def test_nightly_that_fits_better(
    checkout: Path, monkeypatch: Patch, written: str, version: str, expected: list[str] | None
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", written)
    git(checkout, "update-ref", "refs/remotes/origin/main", commit(checkout, {}))
    said = found(checkout, at(checkout, "v1.2.0"), version).said[1:]
    line = "pip install --pre torch==1.3.0.{} --index-url https://download.pytorch.org/whl/nightly/{}"
    assert said == ([f"the nightly nearest to it fits better: {line.format(*expected)}"] if expected else [])


def test_nightly_that_is_not_there_yet(checkout: Path, monkeypatch: Patch) -> None:
    now = datetime.now(timezone.utc)
    monkeypatch.setenv("GIT_COMMITTER_DATE", now.isoformat())
    git(checkout, "update-ref", "refs/remotes/origin/main", commit(checkout, {}))
    (day,) = re.findall(r"dev(\d+)", "".join(found(checkout, at(checkout, "v1.2.0")).said))
    cut = datetime.strptime(f"{day} 10 +0000", "%Y%m%d %H %z")
    assert timedelta(hours=12) <= now - cut <= timedelta(hours=36, minutes=1)
