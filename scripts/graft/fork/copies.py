"""Copy a user's checkout, which is only read: PyTorch's build writes into many folders of its tree."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import CommandError, FetchError
from ..inputs.pin import Pin
from .tree import Tree, commit_folder, find_tree, pinned_base, refuse_other_version

# The user named the checkout, so git may trust it whoever owns it.
_UPLOAD_PACK = "git -c safe.directory='*' upload-pack"


def bring_copy(checkout: Path, pin: Pin, folder: Path) -> None:
    """Make ``folder`` a copy of ``checkout`` without Graft's commits, unless it is one already.

    Args:
        checkout: a repository, or the sources as a plain folder.
        pin: the expected release.
        folder: Graft's own folder. Built files stay, and unchanged files keep their modification times.

    Raises:
        SourceError: ``checkout`` is another release, or has uncommitted changes.
        FetchError: a submodule is missing.
    """
    theirs, copy = find_tree(checkout), make_repository(folder)
    if theirs and theirs.has_commit():
        base = pinned_base(theirs, pin)
        theirs.refuse_changes()
    else:
        refuse_other_version(checkout, pin)
        index = {"GIT_INDEX_FILE": str(copy.git_dir / "graft-index")}
        base = commit_folder(Tree(checkout, copy.git_dir), pin, index)
    if not copy.has_commit() or copy.base_of(copy.head()) != base:
        check_out(copy, base, checkout)


def make_repository(folder: Path) -> Tree:
    """Return the repository at ``folder``, created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = Tree(folder, folder / ".git")
    for lock in tree.git_dir.glob("*.lock"):
        lock.unlink()  # left by a killed git: only one build runs at a time
    tree.git("init", "--quiet", "--initial-branch=upstream")
    return tree


def check_out(copy: Tree, commit: str, checkout: Path) -> None:
    """Check out ``commit`` of the repository ``checkout`` with its submodules.

    HEAD is set last, so a repository with HEAD is complete.

    Raises:
        FetchError: ``checkout`` does not contain the commit, or one of a submodule.
    """
    if copy.git("cat-file", "-e", f"{commit}^{{commit}}", check=False).returncode != 0:
        fetch = ["fetch", "--quiet", "--no-tags", "--depth=1", f"--upload-pack={_UPLOAD_PACK}"]
        copy.git(*fetch, checkout, commit)
    for name, wanted in submodules(copy, commit):
        theirs, ours = checkout / name, make_repository(copy.path / name)
        if ours.has_commit() and ours.head() == wanted:
            continue
        try:
            check_out(ours, wanted, theirs)
        except CommandError as error:
            raise FetchError(
                f"{theirs}: this submodule is not at {wanted}, the commit that PyTorch names",
                cause=error.cause,
                todo=f"git -C {checkout} submodule update --init --recursive",
            ) from error
    copy.git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", "--detach", commit)


def submodules(tree: Tree, commit: str) -> list[tuple[str, str]]:
    """Yield the submodules of a commit: their paths, and the commit of each."""
    entries = tree.git("ls-tree", "-r", "-z", commit).stdout.split("\0")
    links = (entry.removeprefix("160000 commit ").split("\t") for entry in entries if entry.startswith("160000 "))
    return [(name, wanted) for wanted, name in links]
