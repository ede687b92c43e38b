"""``make import``: write what a branch of PyTorch changes as a native folder, to build a release with it in a minute.

List the changes that do not fit in a native folder, since the binaries of the release contain the old code.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection
from pathlib import Path

import yaml

from ..core.console import say
from ..core.errors import UsageError
from ..core.files import lay_out_files
from ..fork.apply import SUBJECTS
from ..fork.stack import Stack
from ..fork.tree import BASE_REF, SourceTree, find_tree
from ..inputs.native import AUTOCAST
from ..inputs.pin import GitSource, load_pin
from ..options import Request
from .answer import Answer, Question
from .derive import derive
from .python_operators import docs_of, without_docstrings
from .repository import Repository
from .versions import Commits, Versions

AUTOCAST_SOURCE = "aten/src/ATen/RegisterAutocast.cpp"


def read_branch(tree: SourceTree, old: str, new: str) -> Answer:
    """Return what the commit ``new`` changes against ``old``. The checkout is only read."""
    top = new
    subjects = [f"--grep={subject}" for subject in SUBJECTS]
    ours = tree.ask("log", "--format=%H", "--fixed-strings", *subjects, f"{old}..{new}").split()
    if ours[:1] == [top]:
        # A fork of ours: leave out the pin's patches, below our commits, and the last commit, which is generated.
        old, new = (tree.ask("rev-parse", f"{commit}~1") for commit in (ours[-1], top))
    versions = Commits(Repository(tree.path), old, new)
    answer = derive(Question(versions, None, is_whole=False))
    if top != new:
        answer |= _take_lists(answer.question, answer.added, Commits(Repository(tree.path), new, top))
    return answer


def _take_lists(question: Question, added: Collection[str], versions: Versions) -> Answer:
    """Take docstrings of the operators ``added``, and autocast policies, from a fork's last commit."""
    answer = Answer(question)
    texts = {name: (versions.after(name) or b"").decode() for name in (*versions.changed, AUTOCAST_SOURCE)}
    for name, text in texts.items():
        if name.startswith("torch/") and name.endswith(".py"):
            docs, computed = docs_of(without_docstrings(text, added)[1])
            answer.files |= {place: body.encode() for place, body in docs.items()}
            answer.left |= {f"{name}: {each}": "its docstring is computed" for each in computed}
    policies: dict[str, list[str]] = {}
    for name, overload, policy in re.findall(
        r"^    KERNEL_CPU\((\w+), (?:(\w+), )?(\w+)\)$", texts[AUTOCAST_SOURCE], re.M
    ):
        policies.setdefault(policy, []).append(f"{name}.{overload}" if overload else name)
    if policies:
        answer.files[str(AUTOCAST)] = yaml.safe_dump(policies, sort_keys=False).encode()
    return answer


def import_branch(request: Request) -> None:
    """Write what a branch, or a diff, changes as a native folder."""
    (target,) = request.native[:1]
    tree = find_tree(Path(request.source).expanduser().resolve()) if request.source else None
    if tree is None or bool(request.branch) == bool(request.diff):
        raise UsageError(
            "what to import is not given",
            todo="set SOURCE to a checkout of PyTorch, with its history, and BRANCH to a branch or DIFF to a diff",
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"NATIVE={target}: there is something already", todo="set NATIVE to a new folder")
    with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
        old, new = _of_diff(tree, request.diff, Path(scratch)) if request.diff else _of_branch(tree, request)
        answer = read_branch(tree, old, new)
    lay_out_files(target, answer.files)
    say(f"{target}: {', '.join(sorted(answer.files)) or 'nothing'}, from {old[:12]}..{new[:12]}")
    if left := sorted([*answer.refused.values(), *(f"{name}: {why}" for name, why in answer.left.items())]):
        listed = "\n".join(f"  {line}" for line in left)
        say(f"left out; `make patch-and-build BUILD=source` builds all of the branch:\n{listed}")


def _of_branch(tree: SourceTree, request: Request) -> tuple[str, str]:
    """Return the commit at which the branch left the pinned release, and the branch's last one."""
    pin = load_pin(request.layout.patches, request.pin)
    # Sources without a repository become one, with this ref, when the fork is applied.
    pinned = pin.source.commit if isinstance(pin.source, GitSource) else BASE_REF
    new = tree.git("rev-parse", "--quiet", "--verify", f"{request.branch}^{{commit}}", check=False).stdout.strip()
    old = tree.git("merge-base", new, pinned, check=False).stdout.strip() if new else ""
    if not new or not re.fullmatch(r"[0-9a-f]{40}", old):
        raise UsageError(
            f"{tree.path}: {f'it has no branch {request.branch}' if not new else f'its history lacks {request.pin}'}",
            todo=f"git -C {tree.path} fetch --tags, or set PIN to the release that the branch began at",
        )
    return old, new


def _of_diff(tree: SourceTree, diff: Path, scratch: Path) -> tuple[str, str]:
    """Return the commit that is checked out, and one with the diff applied to it."""
    stack = Stack(tree, tree.head(), scratch)
    done = tree.git("apply", "--cached", "--whitespace=nowarn", diff, env=stack.index, check=False)
    if done.returncode != 0:
        raise UsageError(
            f"{diff}: it does not apply to {tree.path}",
            cause=done.stdout.strip(),
            todo="check out the commit that it fits",
        )
    stack.commit(f"{diff.name}\n")
    return tree.head(), stack.tip
