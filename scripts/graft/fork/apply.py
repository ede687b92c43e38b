"""``make apply``: turn a PyTorch checkout into the fork that a pin's patches and a native folder describe."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..core.console import StepLine, Steps, say
from ..core.errors import SourceError, UsageError
from ..core.files import build_lock
from ..core.layout import Layout
from ..inputs.native import NativeFolder
from ..inputs.patches import ADDED, Patch, load_series
from ..inputs.snapshot import Snapshot, take_snapshot
from .placing import generate_part, lay_out_torchgen, merge_yaml, placed, python_files
from .stack import Stack
from .tree import BASE_REF, Tree, count, open_tree, pinned_base, shortened

# While this ref exists, files may be partly at HEAD and partly at its commit.
MOVING_REF = "refs/graft/moving"

_KERNELS = """native: add the files of a native folder

They lie where they lay in the folder, which is laid out as aten/src/ATen/native is.
"""
_YAML = """native: describe the added operators

The entries of a native folder, behind upstream's own.
"""
_ADDED = """torch: list the added operators

Their names and docstrings, generated from the merged YAML by this tree's own torchgen, and the Python files of a native
folder: new ones beside torch's, additions behind torch's own text.
"""


@dataclass(frozen=True)
class Fork:
    """The fork in a checkout.

    Args:
        base: the upstream commit.
        tip: the last of our commits.
        written: the number of files written to check it out.
    """

    base: str
    tip: str
    written: int = field(compare=False)


def apply(source: Path, layout: Layout) -> Fork:
    """Check out in ``source`` the fork of its base, and print that.

    Args:
        source: a checkout of PyTorch, or its sources as a plain folder, which becomes a repository.
        layout: the pin and the native folders.

    Raises:
        GraftError: the checkout is unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
        snapshot = replace(take_snapshot(layout), folder=Path(scratch))
        with snapshot.translated(), Steps().step("apply patches and operators") as line:
            fork = make_fork(source, snapshot, snapshot.lay_out(), line)
    say(f"{source} is at {fork.tip}\n  `git -C {source} log {BASE_REF}..` shows the fork")
    return fork


def make_fork(source: Path, snapshot: Snapshot, native: NativeFolder, line: StepLine) -> Fork:
    """Check out the fork of the tree's base, created again from the patches and the native folder.

    Raises:
        GraftError: the checkout is unchanged.
    """
    series, tree = load_series(snapshot.patches), open_tree(source, snapshot.pin)
    with build_lock(tree.git_dir / "graft"):
        base = pinned_base(tree, snapshot.pin)
        go_back(tree)
        tree.refuse_changes()
        with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
            tip = make_commits(Stack(tree, base, Path(scratch)), series, native, Path(scratch))
        written = move_to(tree, tip)
        tree.git("update-ref", BASE_REF, base)
    line.note = f"{count(len(series), 'patch', 'patches')}, {count(written, 'file')} written"
    return Fork(base, tip, written)


def make_commits(stack: Stack, series: list[Patch], native: NativeFolder, scratch: Path) -> str:
    """Create the fork's commits on ``stack``. Return the last.

    Raises:
        PinError: a patch does not apply.
        UsageError: a native file would replace one of the tree's.
        OperatorError: the native folder's YAML is invalid.
    """
    for patch in series:
        stack.apply_patch(patch)
    files = placed(native)
    taken = stack.holds([*files, ADDED])
    if taken:
        raise UsageError(
            "\n".join(f"{files.get(name, name)}: PyTorch has this file, {name}" for name in taken),
            todo="choose another name; changes of PyTorch's own files belong in a patch",
        )
    stack.add(files)
    stack.commit(_KERNELS)
    base, generated = scratch / "base", scratch / "generated"
    lay_out_torchgen(stack, base)
    yaml = merge_yaml(native, base, generated)
    stack.add(yaml)
    stack.commit(_YAML)
    generate_part("python", native, base, generated)
    stack.add(python_files(native, generated, stack, scratch))
    stack.commit(_ADDED)
    return stack.tip


def move_to(tree: Tree, commit: str) -> int:
    """Check out ``commit``, detached, in a way that can be interrupted. Only changed files are written; return how
    many. Raise SourceError if an untracked file would be overwritten.
    """
    old = tree.head()
    if old == commit:
        return 0
    differing = tree.differing(old, commit)
    in_the_way = [name for name in tree.differing(old, commit, "A") if os.path.lexists(tree.path / name)]
    if in_the_way:
        raise SourceError(
            f"{tree.path}: untracked files would be overwritten:\n{shortened(in_the_way)}",
            todo="move them away, or into the native folder, and run the same command again",
        )
    tree.git("update-index", "-q", "--refresh", check=False)
    tree.git("update-ref", MOVING_REF, commit)
    tree.git("read-tree", "-m", "-u", old, commit)
    tree.git("update-ref", "--no-deref", "-m", "graft: apply", "HEAD", commit, old)
    tree.git("update-ref", "-d", MOVING_REF)
    return len(differing)


def go_back(tree: Tree) -> None:
    """Undo an interrupted ``move_to``. If other files are changed, too, do nothing."""
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
