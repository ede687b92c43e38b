"""``make apply``: turn a PyTorch checkout into the fork that a pin's patches and a native folder describe."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..codegen import ADDED
from ..core.console import Steps, say
from ..core.errors import UsageError
from ..core.layout import Layout
from ..core.lock import build_lock
from ..inputs.native import NativeFolder
from ..inputs.patches import Patch, load_series
from ..inputs.pin import Pin
from ..inputs.snapshot import take_snapshot
from .added import generate_added, lay_out_torchgen, merge_yaml, python_files
from .moving import go_back, move_to
from .placing import CMAKE_FILES, placed
from .stack import Stack
from .tree import BASE_REF, count, open_tree, pinned_base

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
    with (
        tempfile.TemporaryDirectory(prefix="graft-") as scratch,
        Steps().step("apply patches and operators") as line,
    ):
        snapshot = replace(take_snapshot(layout), folder=Path(scratch))
        with snapshot.translated():
            native, series = snapshot.lay_out(), load_series(snapshot.patches)
            fork = make_fork(source, snapshot.pin, series, native)
        line.note = f"{count(len(series), 'patch', 'patches')}, {count(fork.written, 'file')} written"
    say(f"{source} is at {fork.tip}\n  `git -C {source} log {BASE_REF}..` shows the fork")
    return fork


def make_fork(source: Path, pin: Pin, series: list[Patch], native: NativeFolder) -> Fork:
    """Check out the fork of the tree's base, created again from the patches and the native folder.

    Raises:
        GraftError: the checkout is unchanged.
    """
    tree = open_tree(source, pin)
    with build_lock(tree.git_dir / "graft"):
        base = pinned_base(tree, pin)
        go_back(tree)
        tree.refuse_changes()
        with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
            tip = make_commits(Stack(tree, base, Path(scratch)), series, native, Path(scratch))
        written = move_to(tree, tip)
        tree.git("update-ref", BASE_REF, base)
    return Fork(base, tip, written)


def make_commits(stack: Stack, series: list[Patch], native: NativeFolder, scratch: Path) -> str:
    """Create the fork's commits on ``stack``. Return the last.

    Raises:
        PinError: a patch does not apply.
        UsageError: a native file would replace one of the tree's.
        OperatorError: the native folder's YAML is invalid, or a source of it would not be compiled.
    """
    for patch in series:
        stack.apply_patch(patch)
    stack.lay_out({}, {name: scratch / name for name in stack.holds(list(CMAKE_FILES))})
    files = placed(native, scratch)
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
    generate_added(native, base, generated)
    stack.add(python_files(native, generated, stack, scratch))
    stack.commit(_ADDED)
    return stack.tip
