"""Compare a checkout's working tree with a commit. Git only reads.

Nothing below ``.git`` changes, nothing is fetched, and no program that the repository's settings name runs.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..core.errors import UsageError
from ..core.process import environment
from ..fork.tree import FUNCTIONS_YAML, find_tree, isolated, names_in

UPSTREAM = "https://github.com/pytorch/pytorch"

# Git before 2.44 has no option against fetching what a partial clone lacks, so no protocol is allowed.
_READ_ONLY = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
_NO_PROGRAMS = ("core.fsmonitor=", f"core.hooksPath={os.devnull}", "log.showSignature=false")

_SUBMODULE = "160000"
_ABSENT = "000000"


@dataclass(frozen=True)
class Repository:
    """A checkout of PyTorch, or a submodule of one.

    Args:
        path: its top folder.
    """

    path: Path

    def head(self) -> str:
        """Return the commit that is checked out; empty if there is none."""
        return self.commit_of("HEAD")

    def commit_of(self, name: str) -> str:
        """Return the commit that a ref or an id names; empty if it is not there."""
        return self.line("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")

    def has(self, commit: str) -> bool:
        """Return whether ``commit`` is in the repository."""
        return self._git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def merge_base(self, first: str, second: str) -> str:
        """Return the best common ancestor of two commits; empty if there is none."""
        return self.line("merge-base", first, second)

    def is_ancestor(self, first: str, second: str) -> bool:
        """Return whether ``second`` is ``first`` or descends from it, as far as the history is there."""
        return self._git("merge-base", "--is-ancestor", first, second).returncode == 0

    def is_shallow(self) -> bool:
        """Return whether the history is cut off."""
        return self.line("rev-parse", "--is-shallow-repository") == "true"

    def changed(self, base: str) -> dict[str, str]:
        """Return the files of the working tree that differ from those of a commit: committed since, staged, unstaged,
        or new and not ignored.

        ``A`` is a new file, ``M`` one with other contents (also with a merge conflict's markers), ``D`` a missing one,
        and ``S`` a submodule that is at another commit or has files that differ; its new files do not count. Times and
        permissions do not count.

        Raises:
            UsageError: the commit is not there, or a sparse checkout leaves out a file that differs.
        """
        compared = self._compared(base)
        for name in self._untracked():
            compared.setdefault(name, (_ABSENT, _ABSENT, "", ""))
        found = {name: self._kind(name, *entry) for name, entry in compared.items()}
        found |= dict.fromkeys(self._edited_submodules(), "S")
        return {name: kind for name, kind in sorted(found.items()) if kind}

    def differing(self, old: str, new: str) -> set[str]:
        """Return the files that differ between two commits. Raise UsageError if one is not there."""
        done = self._git("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
        if done.returncode:
            # Raises if ``old`` is the one that is not there.
            self._files(old)
            self._refuse(new, done)
        return set(_names(done))

    def texts(self, commit: str, names: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of files in a commit; None for a name that is no file there.

        Raises:
            UsageError: the commit is not there, or a partial clone lacks contents.
        """
        wanted = [name for name in dict.fromkeys(names) if "\n" not in name]
        asked = b"".join(os.fsencode(f"{commit}:{name}\n") for name in wanted)
        rest = self._git("cat-file", "--batch", stdin=asked).stdout
        found: dict[str, bytes | None] = dict.fromkeys(names)
        for name in wanted:
            header, _, rest = rest.partition(b"\n")
            if len(words := header.split(b" ")) == 3 and words[2].isdigit():
                size = int(words[2])
                found[name] = rest[:size] if words[1] == b"blob" else None
                rest = rest[size + 1 :]
        if absent := [name for name in wanted if found[name] is None]:
            lacking = sorted(self._files(commit).intersection(absent))
            # The command fetches all of them at once. More names would not fit in its line.
            which = ["--", *lacking] if len(lacking) <= 10 else []
            if lacking:
                raise UsageError(
                    f"{self.path}: a partial clone, without the contents of {lacking[0]} in {commit}",
                    todo=shlex.join(["git", "-C", str(self.path), "diff", "--shortstat", commit, *which]),
                )
        return found

    def state(self) -> Hashable:
        """Return a value that differs if the result of ``changed`` may differ. Contents are not read.

        Edits inside submodules are not noticed: that would take a process for each.
        """
        head = self.head()
        return head, *(self._times(name) for name in [*self._compared(head), *self._untracked()])

    def fetch_line(self, what: str, source: str = "", depth: str = "--depth=1") -> str:
        """Return the command that fetches a commit. In a shallow clone, it has the option ``depth``."""
        depths = [depth] if self.is_shallow() else []
        return shlex.join(["git", "-C", str(self.path), "fetch", *depths, source or self.remote() or UPSTREAM, what])

    def remote(self) -> str:
        """Return the name of the remote that is most likely PyTorch's own; empty if there is none."""
        settings = names_in(self.line("config", "--null", "--name-only", "--get-regexp", r"^remote\..*\.url$"))
        names = [setting.removeprefix("remote.").removesuffix(".url") for setting in settings]
        return min(names, key=lambda name: (name != "upstream", name != "origin"), default="")

    def line(self, *words: str) -> str:
        """Return git's output without the trailing newline; empty if git fails."""
        done = self._git(*words)
        return "" if done.returncode else os.fsdecode(done.stdout).strip("\n")

    def _git(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        # Drop all of the caller's variables for git: in a git hook, GIT_DIR is another repository's.
        variables = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
        variables |= {**isolated(), **_READ_ONLY, "GIT_DIR": str(self.path / ".git"), "GIT_WORK_TREE": str(self.path)}
        options = [word for setting in _NO_PROGRAMS for word in ("-c", setting)]
        command = ["git", *options, *words]
        return subprocess.run(command, cwd=self.path, env=variables, input=stdin, capture_output=True, check=False)

    def _compared(self, commit: str) -> dict[str, tuple[str, str, str, str]]:
        """Return the tracked files that may differ from those of a commit, with modes and ids in the commit and now."""
        settings = names_in(self.line("config", "--null", "--name-only", "--get-regexp", r"^filter\."))
        drivers = {setting.rpartition(".")[0] for setting in settings}
        # Git reads a file as new as the index through its filter, which is a program: switch off all filters.
        off = [f"{driver}.{key}" for driver in sorted(drivers) for key in ("clean=", "process=", "required=false")]
        options = [word for setting in off for word in ("-c", setting)]
        done = self._git(*options, "diff-index", "-z", "--no-renames", "--ignore-submodules=dirty", commit, "--")
        if done.returncode:
            self._refuse(commit, done)
        fields = iter(_names(done))
        found = ((entry[1:].split(" "), next(fields)) for entry in fields)
        return {name: (old, new, before, after) for (old, new, before, after, _), name in found}

    def _untracked(self) -> list[str]:
        """Return new files that are not ignored, without repositories inside the checkout."""
        names = _names(self._git("ls-files", "--others", "--exclude-standard", "-z"))
        return [name for name in names if not name.endswith("/")]

    def _kind(self, name: str, old: str, new: str, before: str, after: str) -> str:
        """Return how a file differs; empty if it does not."""
        if _SUBMODULE in (old, new):
            return "S"
        path = self.path / name
        is_there = os.path.lexists(path) and (path.is_symlink() or not path.is_dir())
        if old == _ABSENT:
            return "A" if is_there else ""
        if is_there:
            return "" if _has_id(path, before) else "M"
        # The file is missing, but git goes by the index, which has it.
        if after.strip("0") and self.line("ls-files", "-t", "--", name).startswith("S "):
            raise UsageError(
                f"{path}: the branch changes it, but a sparse checkout leaves it out",
                todo=shlex.join(["git", "-C", str(self.path), "sparse-checkout", "disable"]),
            )
        return "D"

    def _edited_submodules(self) -> list[str]:
        entries = _names(self._git("ls-files", "--stage", "-z"))
        names = [entry.partition("\t")[2] for entry in entries if entry.startswith(_SUBMODULE)]
        return [name for name in names if os.path.lexists(self.path / name / ".git") and self._is_edited(name)]

    def _is_edited(self, name: str) -> bool:
        submodule = Repository(self.path / name)
        try:
            return any(submodule._kind(file, *entry) for file, entry in submodule._compared("HEAD").items())
        except UsageError:
            return True  # a clone of it that was interrupted

    def _times(self, name: str) -> Hashable:
        try:
            found = os.lstat(self.path / name)
        except OSError:
            return name
        return name, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _files(self, commit: str) -> set[str]:
        """Return the files of a commit, without submodules."""
        done = self._git("ls-tree", "-r", "-z", commit)
        if done.returncode:
            self._refuse(commit, done)
        entries = (entry.partition("\t") for entry in _names(done))
        return {name for entry, _, name in entries if entry.split(" ")[1] == "blob"}

    def _refuse(self, commit: str, done: subprocess.CompletedProcess[bytes]) -> NoReturn:
        """Raise UsageError for a commit whose list of files git could not read."""
        if not self.has(commit):
            raise UsageError(f"{self.path}: it lacks commit {commit}", todo=self.fetch_line(commit))
        raise UsageError(
            f"{self.path}: git cannot read commit {commit}; a partial clone may lack its list of files",
            cause=os.fsdecode(done.stderr).strip()[-1000:],
            # Fetching the top folder also fetches all folders below it.
            todo=shlex.join(["git", "-C", str(self.path), "cat-file", "-e", f"{commit}^{{tree}}"]),
        )


def open_repository(path: Path) -> Repository:
    """Return the checkout that the folder ``path`` is, or is in.

    Raises:
        UsageError: it is not PyTorch, or no repository, or one without a commit.
    """
    tops = (folder for folder in (path, *path.parents) if (folder / FUNCTIONS_YAML).is_file())
    tree = find_tree(next(tops, path))
    repository = Repository(tree.path) if tree else None
    if repository is None or not repository.head():
        raise UsageError(
            f"{path}: sources of PyTorch, but no git repository with a commit: what they change is not known",
            todo=f"set SOURCE to a clone of {UPSTREAM}",
        )
    return repository


def _names(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return names_in(os.fsdecode(done.stdout))


def _has_id(path: Path, expected: str) -> bool:
    """Return whether a file has the contents with git's id ``expected``, with converted line ends or without."""
    try:
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except FileNotFoundError:
        return False  # removed just now; the next comparison will see it
    kind = "sha1" if len(expected) == 40 else "sha256"
    return expected in {
        hashlib.new(kind, b"blob %d\0%b" % (len(text), text), usedforsecurity=False).hexdigest()
        for text in (content, content.replace(b"\r\n", b"\n"))
    }
