"""Commits on top of a base, created in a separate index: files and HEAD of the checkout do not change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import PinError
from ..inputs.patches import Patch
from .tree import Tree


class Stack:
    """A sequence of commits that grows.

    Args:
        tree: the checkout whose repository contains them.
        base: the commit below them.
        scratch: an empty folder.
    """

    def __init__(self, tree: Tree, base: str, scratch: Path) -> None:
        self.tree = tree
        self.tip = base
        self._index = {"GIT_INDEX_FILE": str(scratch / f"index-{base}")}
        tree.git("read-tree", base, env=self._index)

    def commit(self, message: str) -> None:
        """Commit the staged changes, if any."""
        content = self.content()
        if content != self.tree.ask("rev-parse", f"{self.tip}^{{tree}}"):
            self.tip = self.tree.commit_tree(content, self.tip, message)

    def content(self) -> str:
        """The id of the staged tree."""
        return self.tree.git("write-tree", "--missing-ok", env=self._index).stdout.strip()

    def add(self, files: Mapping[str, Path]) -> None:
        """Stage files by name in the tree."""
        for name, path in files.items():
            blob = self.tree.ask("hash-object", "-w", "--no-filters", path)
            self.tree.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=self._index)

    def apply(self, path: Path) -> str | None:
        """Stage the changes of a patch file. Return git's message if it does not apply."""
        done = self.tree.git("apply", "--cached", "--whitespace=nowarn", path, env=self._index, check=False)
        return done.stdout.strip() if done.returncode else None

    def apply_patch(self, patch: Patch) -> None:
        """Commit a patch of the series with its header as the message.

        Raises:
            PinError: it does not apply; lists each hunk that failed.
        """
        message = self.apply(patch.path)
        if message is None:
            self.commit(commit_message(patch.path.read_text(encoding="utf-8")))
            return
        aside = shlex.quote(f"{self.tree.path}-{patch.path.stem}")
        git = f"git -C {shlex.quote(str(self.tree.path))} worktree add --detach {aside} {self.tip}"
        raise PinError(
            "\n".join([*failing_hunks(patch.path, message), f"{patch.path}: the patch does not apply"]),
            cause=message,
            todo=f"`{git} && git -C {aside} apply --reject {shlex.quote(str(patch.path))}`, apply by hand what "
            f"the .rej files contain, and put what `git -C {aside} diff` prints after the header of the patch",
        )

    def holds(self, names: list[str]) -> list[str]:
        """Return those of ``names`` that the tip contains."""
        listed = self.tree.git("ls-tree", "-r", "-z", "--name-only", self.tip, "--", *names).stdout.split("\0")
        return [name for name in names if name in listed]

    def lay_out(self, folders: Mapping[str, Path], files: Mapping[str, Path]) -> None:
        """Write folders and files of the tip to the paths in the mappings."""
        for number, (name, target) in enumerate(folders.items()):
            index = {"GIT_INDEX_FILE": f"{self._index['GIT_INDEX_FILE']}-{number}"}
            self.tree.git("read-tree", f"{self.tip}:{name}", env=index)
            self.tree.git("checkout-index", "--all", "--quiet", f"--prefix={target}/", env=index)
        for name, target in files.items():
            aside = target.parent / ".aside"
            self.tree.git("checkout-index", "--quiet", f"--prefix={aside}/", "--", name, env=self._index)
            (aside / name).replace(target)


def commit_message(patch: str) -> str:
    """Convert the header of a patch to a commit message: its subject, a blank line, and the rest."""
    header = re.split(r"^(?:diff --git|---) ", patch, maxsplit=1, flags=re.M)[0].rstrip()
    subject, *rest = re.split(r"\n(?! )", header.removeprefix("Subject: "))
    body = "\n".join(line.rstrip() for line in "\n".join(rest).strip().splitlines())
    return f"{' '.join(subject.split())}\n\n{body}\n" if body else f"{' '.join(subject.split())}\n"


def failing_hunks(path: Path, message: str) -> list[str]:
    """Return the places in a patch file of the hunks that failed according to git's ``message``."""
    failed = set(re.findall(r"patch failed: (.+):(\d+)$", message, re.M))
    found, target, number = [], "", 0
    for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("--- a/"):
            target, number = line[6:].split("\t")[0], 0
        elif hunk := re.match(r"@@ -(\d+)", line):
            number += 1
            if (target, hunk[1]) in failed:
                found.append(f"{path}:{at}: hunk {number} of {target} does not apply")
    return found
