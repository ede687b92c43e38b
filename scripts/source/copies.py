"""A copy of a user's checkout, which is only read: PyTorch's build writes all over its tree."""

from __future__ import annotations

from pathlib import Path

from ..common.errors import CommandError, FetchError
from ..inputs.pin import Pin
from .tree import Tree, commit_folder, find_tree, pinned_base, refuse_other_version

# Whoever owns the checkout, the user has named it.
_UPLOAD_PACK = "git -c safe.directory='*' upload-pack"


def bring_copy(checkout: Path, pin: Pin, folder: Path) -> None:
    """Make ``folder`` a copy of ``checkout`` as it was before Graft's commits, unless it is one already.

    Args:
        checkout: a repository, or the sources as a plain folder.
        pin: the release that it must be.
        folder: Graft's own. What was built there stays, and files that do not differ keep their times.

    Raises:
        SourceError: ``checkout`` is another release, or there are changes that no commit holds.
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
    """The repository at ``folder``, made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = Tree(folder, folder / ".git")
    for lock in tree.git_dir.glob("*.lock"):
        lock.unlink()  # of a git that was killed: there is one build at a time
    tree.git("init", "--quiet", "--initial-branch=upstream")
    return tree


def check_out(copy: Tree, commit: str, checkout: Path) -> None:
    """Check out ``commit`` of the repository ``checkout`` with its submodules.

    HEAD is set last, so that whatever has it is whole.

    Raises:
        FetchError: ``checkout`` does not hold the commit, or one of a submodule.
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
    """The submodules of a commit: where they lie, and what commit each must be at."""
    entries = tree.git("ls-tree", "-r", "-z", commit).stdout.split("\0")
    links = (entry.removeprefix("160000 commit ").split("\t") for entry in entries if entry.startswith("160000 "))
    return [(name, wanted) for wanted, name in links]
