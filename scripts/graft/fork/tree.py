"""A PyTorch source checkout as a git repository."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import UsageError
from ..core.process import run
from ..inputs.pin import GitSource, Pin

BASE_REF = "refs/graft/base"
NAME, EMAIL = "Graft", "graft@localhost"
FUNCTIONS_YAML = "aten/src/ATen/native/native_functions.yaml"

# The date of the commit for a folder without a history; any fixed time works.
_IMPORT_DATE = "@946684800 +0000"
# A longer sequence of commits is not a fork of ours.
_LONGEST_FORK = 1000


@dataclass(frozen=True)
class SourceTree:
    """A checkout and its repository."""

    path: Path
    git_dir: Path

    def git(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run git with the repository's own settings only: the user's settings must not change commit ids."""
        folders = {"GIT_DIR": self.git_dir, "GIT_WORK_TREE": self.path, "GIT_INDEX_FILE": self.git_dir / "index"}
        variables = {**isolated(), **{name: str(path) for name, path in folders.items()}, **(env or {})}
        return run(["git", *arguments], cwd=self.path, env=variables, check=check, stdin=stdin)

    def ask(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Return git's output without the trailing newline."""
        return self.git(*arguments, env=env).stdout.strip()

    def head(self) -> str:
        """Return the commit that is checked out; empty if there is none."""
        done = self.git("rev-parse", "--quiet", "--verify", "HEAD^{commit}", check=False)
        return "" if done.returncode else done.stdout.strip()

    def holds(self, commit: str, name: str) -> bool:
        """Return whether a commit contains a file."""
        return self.git("cat-file", "-e", f"{commit}:{name}", check=False).returncode == 0

    def base_of(self, commit: str) -> str:
        """Return the upstream commit below our own commits, which have our committer.

        It is ``commit`` itself if there are none, and the first commit if we committed a folder without a history.
        """
        form = "--format=%H%x09%P%x09<%ce>"
        history = self.ask("log", "--first-parent", f"--max-count={_LONGEST_FORK}", "--no-show-signature", form, commit)
        for line in history.splitlines():
            found, parents, email = line.split("\t")
            if email != f"<{EMAIL}>" or not parents:
                return found
        return commit

    def commit_tree(self, tree: str, parent: str | None, message: str) -> str:
        """Create a commit whose id depends only on the arguments; its date is the parent's."""
        date = f"@{self.ask('log', '--max-count=1', '--format=%ct', parent)} +0000" if parent else _IMPORT_DATE
        who = {
            f"GIT_{role}_{field}": value
            for role in ("AUTHOR", "COMMITTER")
            for field, value in (("NAME", NAME), ("EMAIL", EMAIL), ("DATE", date))
        }
        above = ["-p", parent] if parent else []
        words = ["-c", "i18n.commitEncoding=UTF-8", "commit-tree", "--no-gpg-sign", tree, *above, "-m", message]
        return self.ask(*words, env=who)

    def refuse_changes(self) -> None:
        """Raise UsageError, with a list, if there are uncommitted changes."""
        form = ["--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"]
        if changed := self.git("status", *form).stdout.splitlines():
            raise UsageError(
                f"{self.path}: {count(len(changed), 'file')} changed:\n{shortened(changed)}",
                cause="Graft did not make these changes, and would overwrite them",
                todo=f"`git -C {self.path} stash` saves them, `git -C {self.path} reset --hard` discards them",
            )

    def differing(self, old: str, new: str, kinds: str = "") -> list[str]:
        """Return the files that differ between two commits; ``kinds`` is git's --diff-filter."""
        options = ["-r", "-z", "--name-only", "--no-renames", f"--diff-filter={kinds}"]
        return names_in(self.git("diff-tree", *options, old, new).stdout)


def isolated() -> dict[str, str]:
    """Return variables that disable the settings of user and machine, and writing by commands that only read."""
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
    return {**settings, "GIT_OPTIONAL_LOCKS": "0"}


def find_tree(path: Path) -> SourceTree | None:
    """Return the checkout at ``path``; None if it is not the top of a repository. Raise UsageError if it is not
    PyTorch.
    """
    if not (path / FUNCTIONS_YAML).is_file():
        raise UsageError(
            f"{path}: not a PyTorch source tree: it has no {FUNCTIONS_YAML}",
            todo="set SOURCE to the top folder of a checkout of PyTorch",
        )
    if not os.path.lexists(path / ".git"):
        return None
    # The git folder of a worktree is elsewhere.
    return SourceTree(path, Path(SourceTree(path, path / ".git").ask("rev-parse", "--absolute-git-dir")))


def open_tree(path: Path, pin: Pin) -> SourceTree:
    """Return the checkout at ``path``. A folder without a repository becomes one."""
    tree = find_tree(path)
    if tree is None or not tree.head():
        refuse_other_version(path, pin)
        tree = tree or make_repository(path)
        tree.git("update-ref", "HEAD", commit_folder(tree, pin))
    return tree


def make_repository(folder: Path) -> SourceTree:
    """Return the repository at ``folder``, created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = SourceTree(folder, folder / ".git")
    for lock in tree.git_dir.rglob("*.lock"):
        lock.unlink()  # left by a killed git: only one build runs at a time
    tree.git("init", "--quiet", "--initial-branch=upstream")
    return tree


def commit_folder(tree: SourceTree, pin: Pin, env: Mapping[str, str] | None = None) -> str:
    """Commit the original files of ``tree``. No branch refers to the commit yet."""
    add = ["-c", "advice.addEmbeddedRepo=false", "add", "--all"]
    tree.git(*add, env=env)
    # Files that the projects there ignore came with the sources, too: PyTorch's build does not write them.
    if (tree.path / "third_party").is_dir():
        tree.git(*add, "--force", "--", "third_party", env=env)
    return tree.commit_tree(tree.ask("write-tree", env=env), None, f"PyTorch {pin.version.release}, as it came\n")


def pinned_base(tree: SourceTree, pin: Pin) -> str:
    """Return the commit below our own, which must be the pinned one."""
    base = tree.base_of(tree.head())
    if tree.ask("log", "--max-count=1", "--no-show-signature", "--format=%ce", base) == EMAIL:
        refuse_other_version(tree.path, pin)  # the first commit of a folder without a history
    elif not isinstance(pin.source, GitSource):
        raise UsageError(
            f"{tree.path}: this is commit {base}, but the pin is {pin.source.package} {pin.source.version} of Debian",
            cause="there are other commits, or this is a different tree",
            todo="leave SOURCE out to download the sources, or set it to the unpacked sources of that package",
        )
    elif base != (wanted := pin.source.commit):
        is_above = tree.git("merge-base", "--is-ancestor", wanted, base, check=False).returncode == 0
        raise UsageError(
            f"{tree.path}: this is commit {base}, but the pin is {wanted} (PyTorch {pin.version.release})",
            cause="there are other commits on top" if is_above else "another version is checked out",
            todo=f"git -C {tree.path} checkout --detach {wanted}, after fetching it if needed",
        )
    return base


def refuse_other_version(folder: Path, pin: Pin) -> None:
    """Raise UsageError if version.txt of the sources does not have the pinned version."""
    path = folder / "version.txt"
    version = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if not re.match(rf"{re.escape(pin.version.release)}(?![.\d])", version):
        raise UsageError(
            f"{path}:1: this is PyTorch {version or '(unknown version)'}, but the pin is {pin.version.release}",
            todo="set SOURCE to the sources of the pinned release, or PIN to a pin of this one",
        )


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 file``, ``2 files``."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def shortened(lines: list[str], most: int = 10) -> str:
    """Return the first lines, indented, and the number of remaining ones."""
    rest = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join(f"    {line}" for line in [*lines[:most], *rest])


def names_in(output: str) -> list[str]:
    """Return the names in git's output with ``-z``."""
    return [name for name in output.split("\0") if name]
