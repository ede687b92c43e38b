"""A small tree like PyTorch's, patches for it and a native folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asking import asked
from graft.checkout.branch import import_branch
from graft.codegen.description import NAMESPACES, BoundName, Description
from graft.core.layout import TorchVersion
from graft.fork.apply import Fork
from helpers import beside, git, write

TEXTS = beside(__file__)

_TORCH = next(namespace for namespace in NAMESPACES if namespace.name == "torch")
DESCRIPTION = Description(bound=[BoundName(_TORCH, "mine", "mine", signatures="mine(input)", reference="", derived="")])

TEXT = "".join(f"line_{number}\n" for number in range(1, 41))
FILES = {"torch/text.py": TEXT, **TEXTS["files"]}
PATCHES, NATIVE = TEXTS["patches"], TEXTS["native"]


def state(tree: Path) -> tuple[str, str, str]:
    """Everything that a rejected command must not change."""
    head, branch = git(tree, "rev-parse", "HEAD"), git(tree, "rev-parse", "--symbolic-full-name", "HEAD")
    return head, branch, git(tree, "status", "--porcelain")


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the time and the content of each file in a folder, also of git's own."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def contents(tree: Path) -> dict[str, bytes]:
    return {name: content for name, (_, content) in everything(tree).items() if ".git" not in name.split("/")}


def times(tree: Path) -> dict[str, int]:
    return {name: time for name, (time, _) in everything(tree).items() if ".git" not in name.split("/")}


def log(tree: Path, fork: Fork, form: str) -> list[str]:
    return git(tree, "log", "--reverse", f"--format={form}", f"{fork.base}..HEAD").splitlines()


def commit(tree: Path, files: Mapping[str, str], message: str = "commit") -> str:
    """Write files and commit them. Return the commit."""
    write(tree, files)
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--allow-empty", f"--message={message}")
    return git(tree, "rev-parse", "HEAD")


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    """Return a new repository with one commit of these files."""
    write(folder, files)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, {})
    return folder


def import_into(into: Path, tree: Path, **what: Any) -> dict[str, bytes]:
    """Write the native folder that `make import` makes of a branch or a diff. Return its files."""
    import_branch(asked(source=str(tree), native=(into,), pin=TorchVersion("1.2.0"), **what))
    return contents(into)


def of_branch(tree: Path, into: Path, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the imported files of a branch that makes changes."""
    git(tree, "checkout", "--quiet", "-b", "fix")
    commit(tree, changes)
    git(tree, "checkout", "--quiet", "main")
    return {name: content.decode() for name, content in import_into(into, tree, branch="fix").items()}


def commit_upstream(tree: Path, patches: Path, files: Mapping[str, str]) -> Path:
    """Commit files to the small tree, and pin that commit. Return the tree."""
    commit(tree, files)
    pin = patches / "pin.yaml"
    pin.write_text(pin.read_text().replace(git(tree, "rev-parse", "HEAD~1"), git(tree, "rev-parse", "HEAD")))
    return tree
