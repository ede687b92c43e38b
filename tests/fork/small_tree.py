"""A small tree like PyTorch's, patches for it and a native folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graft.codegen.description import NAMESPACES, BoundName, Description
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


def contents(tree: Path) -> dict[str, bytes]:
    paths = [path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in paths}


def times(tree: Path) -> dict[str, int]:
    return {name: (tree / name).stat().st_mtime_ns for name in contents(tree)}


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


def commit_upstream(tree: Path, patches: Path, files: Mapping[str, str]) -> Path:
    """Commit files to the small tree, and pin that commit. Return the tree."""
    commit(tree, files)
    pin = patches / "pin.yaml"
    pin.write_text(pin.read_text().replace(git(tree, "rev-parse", "HEAD~1"), git(tree, "rev-parse", "HEAD")))
    return tree
