"""Check out a commit in a way that can be interrupted: the next call undoes an interrupted one."""

from __future__ import annotations

import os

from ..core.errors import UsageError
from .tree import SourceTree, shortened

# While this ref exists, files may be partly at HEAD and partly at its commit.
MOVING_REF = "refs/graft/moving"


def move_to(tree: SourceTree, commit: str) -> int:
    """Check out ``commit``, detached, in a way that can be interrupted. Only changed files are written; return how
    many. Raise UsageError if an untracked file would be overwritten.
    """
    old = tree.head()
    if old == commit:
        return 0
    in_the_way = [name for name in tree.differing(old, commit, "A") if os.path.lexists(tree.path / name)]
    if in_the_way:
        raise UsageError(
            f"{tree.path}: untracked files would be overwritten:\n{shortened(in_the_way)}",
            todo="move them away, or into the native folder, and run the same command again",
        )
    tree.git("update-index", "-q", "--refresh", check=False)
    tree.git("update-ref", MOVING_REF, commit)
    tree.git("read-tree", "-m", "-u", old, commit)
    tree.git("update-ref", "--no-deref", "-m", "graft: apply", "HEAD", commit, old)
    tree.git("update-ref", "-d", MOVING_REF)
    return len(tree.differing(old, commit))


def go_back(tree: SourceTree) -> None:
    """Undo an interrupted ``move_to``. Do nothing if other files are changed, too."""
    aim = tree.git("rev-parse", "--quiet", "--verify", f"{MOVING_REF}^{{commit}}", check=False)
    if aim.returncode != 0:
        return
    # No other process holds it: git was killed, and we hold our own lock.
    (tree.git_dir / "index.lock").unlink(missing_ok=True)
    tree.git("update-index", "-q", "--refresh", check=False)
    old, new = tree.head(), aim.stdout.strip()
    changed = tree.git("diff-index", "-z", "--name-only", "--no-renames", old).stdout.split("\0")
    if set(filter(None, changed)) <= set(tree.differing(old, new)):
        for name in tree.differing(old, new, "A"):
            (tree.path / name).unlink(missing_ok=True)
        tree.git("read-tree", "--reset", "-u", old)
        tree.git("update-ref", "-d", MOVING_REF)
