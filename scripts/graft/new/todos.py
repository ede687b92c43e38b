"""Lines marked TODO, which `make new-op` writes where text is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graft.core.console import say
from graft.core.files import files_below

MARK = "TODO"
# The message of a kernel by `make new-op` until it is implemented. Until then every test fails with it.
NO_CODE = "TODO: implement it"

_SUFFIXES = frozenset({".cpp", ".h", ".cu", ".cuh", ".py", ".rst", ".yaml"})
# No tracebacks, and no line for each test.
_QUIET = "--tb=no -rN"
_SHOWN = 30


@dataclass(frozen=True)
class Todo:
    """A place to complete: ``file:line: text``."""

    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def todos(native: Path, names: Iterable[Path] | None = None) -> list[Todo]:
    """Return the places marked TODO in a native folder.

    Args:
        native: the folder.
        names: the files to search; None for all.
    """
    found = []
    for name in files_below(native) if names is None else names:
        if name.suffix in _SUFFIXES:
            lines = (native / name).read_text(encoding="utf-8", errors="replace").splitlines()
            found += [Todo(native / name, n, _said(line)) for n, line in enumerate(lines, 1) if MARK in line]
    return found


def _said(line: str) -> str:
    """Return a line's text from its mark on, without code after a message."""
    return line[line.index(MARK) :].rstrip().removesuffix('");').removesuffix('")').removesuffix('"""')


@contextmanager
def ending_with_todos(natives: Sequence[Path]) -> Iterator[None]:
    """Print the remaining TODOs after the tests.

    While a kernel is not implemented, all tests fail with its message, so only their number is shown.
    """
    found = [todo for native in natives if native.is_dir() for todo in todos(native)]
    before = os.environ.get("PYTEST_ADDOPTS")
    if is_empty := any(NO_CODE in todo.text for todo in found):
        os.environ["PYTEST_ADDOPTS"] = f"{_QUIET} {before or ''}".strip()
    try:
        yield
    finally:
        if is_empty:
            os.environ.pop("PYTEST_ADDOPTS")
            os.environ |= {"PYTEST_ADDOPTS": before} if before is not None else {}
        if found:
            are = "places are" if len(found) > 1 else "place is"
            say("\n".join(["", f"{len(found)} {are} left to complete:", *map(str, _first(found))]))
        if is_empty:
            say('test failures of a kernel without code are not shown; `ARGS="-- --tb=short"` shows them')


def _first(found: Sequence[Todo]) -> list[Todo | str]:
    rest = len(found) - _SHOWN
    return [*found[:_SHOWN], *([f"and {rest} more"] if rest > 0 else [])]
