"""``python -m tests.kit.promises [COMMIT]``: what the tests promise, one line for each test; or what has changed since
a commit.

A line is the test's place, and the first line of its docstring or else its name in words.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from graft.core.layout import REPOSITORY
from graft.core.process import run

_FOLDERS = ("tests", "native")


def promises(commit: str = "") -> dict[str, str]:
    """Map the place of each test to its promise: in the working tree, or in a commit."""
    listing = ["ls-tree", "-r", "--name-only", commit] if commit else ["ls-files", "--cached", "--others"]
    found: dict[str, str] = {}
    for name in _git(*listing, *([] if commit else ["--exclude-standard"]), "--", *_FOLDERS).splitlines():
        if name.rpartition("/")[2].startswith("test_") and name.endswith(".py"):
            path = REPOSITORY / name
            if commit or path.is_file():
                text = _git("show", f"{commit}:{name}") if commit else path.read_text(encoding="utf-8")
                found.update({f"{name}::{test}": promise for test, promise in _of_text(text)})
    return found


def _of_text(text: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            words = node.name.removeprefix("test_").replace("_", " ")
            yield node.name, (ast.get_docstring(node) or words).splitlines()[0]


def _git(*arguments: str) -> str:
    return run(["git", *arguments], cwd=REPOSITORY).stdout


def main(commit: str = "") -> None:
    now = promises()
    if not commit:
        print("\n".join(f"{place}: {promise}" for place, promise in sorted(now.items())))
        return
    before = promises(commit)
    for sign, ours, others in (("-", before, now), ("+", now, before)):
        kept = set(others.values())  # a test that only moved is no change
        lines = [f"{sign} {place}: {each}" for place, each in sorted(ours.items()) if each not in kept]
        print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
