"""Commits on top of a source tree's base, made without checking anything out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..core.errors import UsageError
from ..inputs.patches import Patch
from .tree import SourceTree, names_in


class Stack:
    """A sequence of commits on ``base``, in a separate index in the empty folder ``scratch``: files and HEAD of the
    checkout do not change.
    """

    def __init__(self, tree: SourceTree, base: str, scratch: Path) -> None:
        self.tree = tree
        self.tip = base
        self.index = {"GIT_INDEX_FILE": str(scratch / f"index-{base}")}
        tree.git("read-tree", base, env=self.index)

    def commit(self, message: str) -> None:
        """Commit the staged changes, if any."""
        content = self.tree.ask("write-tree", "--missing-ok", env=self.index)
        if content != self.tree.ask("rev-parse", f"{self.tip}^{{tree}}"):
            self.tip = self.tree.commit_tree(content, self.tip, message)

    def add(self, files: Mapping[str, Path]) -> None:
        """Stage files by name in the tree."""
        for name, path in files.items():
            blob = self.tree.ask("hash-object", "-w", "--no-filters", path)
            self.tree.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=self.index)

    def apply(self, patch: Patch) -> None:
        """Commit a patch of the series with its header as the message."""
        done = self.tree.git("apply", "--cached", "--whitespace=nowarn", env=self.index, check=False, stdin=patch.text)
        if done.returncode == 0:
            self.commit(commit_message(patch.text))
            return
        message = done.stdout.strip()
        aside = shlex.quote(f"{self.tree.path}-{patch.path.stem}")
        git = f"git -C {shlex.quote(str(self.tree.path))} worktree add --detach {aside} {self.tip}"
        raise UsageError(
            "\n".join([*failing_hunks(patch, message), f"{patch.path}: the patch does not apply"]),
            cause=message,
            todo=f"`{git} && git -C {aside} apply --reject {shlex.quote(str(patch.path))}`, apply by hand what "
            f"the .rej files contain, and put what `git -C {aside} diff` prints after the header of the patch",
        )

    def holds(self, names: Iterable[str]) -> list[str]:
        """Return the ``names`` that the tip contains."""
        listed = names_in(self.tree.git("ls-files", "-z", env=self.index).stdout)
        return sorted({*names} & {*listed})

    def naming(self, word: str, pattern: str) -> list[str]:
        """Return the files of the tip that match ``pattern`` and contain a word."""
        options = ["--cached", "-z", "--name-only", "--word-regexp", "--fixed-strings", "-e", word]
        return names_in(self.tree.git("grep", *options, "--", pattern, env=self.index, check=False).stdout)

    def text(self, name: str) -> str:
        """Return the text of a file of the tip."""
        return self.tree.git("show", f"{self.tip}:{name}").stdout

    def lay_out(self, names: Collection[str], folder: Path) -> None:
        """Write folders and files of the tip below ``folder``, at their places in the tree."""
        listed = self.tree.git("ls-files", "-z", "--", *names, env=self.index).stdout if names else ""
        options = ["-z", "--stdin", "--force", "--quiet", f"--prefix={folder}/"]
        self.tree.git("checkout-index", *options, env=self.index, stdin=listed)


def commit_message(patch: str) -> str:
    """Convert the header of a patch to a commit message: its subject, a blank line, and the rest."""
    header = re.split(r"^(?:diff --git|---) ", patch, maxsplit=1, flags=re.M)[0].rstrip()
    subject, *rest = re.split(r"\n(?! )", header.removeprefix("Subject: "))
    body = "\n".join(line.rstrip() for line in "\n".join(rest).strip().splitlines())
    return f"{' '.join(subject.split())}\n\n{body}\n" if body else f"{' '.join(subject.split())}\n"


def failing_hunks(patch: Patch, message: str) -> list[str]:
    """Return a line for each hunk of a patch that failed according to git's ``message``, with its place in the file."""
    failed = set(re.findall(r"patch failed: (.+):(\d+)$", message, re.M))
    found, target, number = [], "", 0
    for at, line in enumerate(patch.text.splitlines(), 1):
        if line.startswith("--- a/"):
            target, number = line[6:].split("\t")[0], 0
        elif hunk := re.match(r"@@ -(\d+)", line):
            number += 1
            if (target, hunk[1]) in failed:
                found.append(f"{patch.path}:{at}: hunk {number} of {target} does not apply")
    return found
