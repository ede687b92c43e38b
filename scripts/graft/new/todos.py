"""Lines marked TODO, which `make new-op` writes where text is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from ..core.console import say
from ..core.files import files_below

# The message of a kernel by `make new-op` until it is implemented. Until then every test fails with it.
NO_CODE = "TODO: implement it"
_SUFFIXES = frozenset({".cpp", ".h", ".cu", ".cuh", ".py", ".rst", ".yaml"})
_SHOWN = 30
# What follows a message in C++ or Python.
_CODE_BEHIND = re.compile(r'"+\)?;?\s*$')


def todos(native: Path, names: Iterable[Path] | None = None) -> list[str]:
    """Return the places marked TODO in a native folder, as ``file:line: text``.

    Args:
        native: the folder.
        names: the files to search; None for all.
    """
    return [
        f"{native / name}:{number}: {_CODE_BEHIND.sub('', line[line.index('TODO') :])}"
        for name in (files_below(native) if names is None else names)
        if name.suffix in _SUFFIXES
        for number, line in enumerate((native / name).read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if "TODO" in line
    ]


@contextmanager
def ending_with_todos(natives: Sequence[Path]) -> Iterator[None]:
    """Print the remaining TODOs after the tests.

    While a kernel is not implemented, all tests fail with its message, so only their number is shown.
    """
    found = [todo for native in natives if native.is_dir() for todo in todos(native)]
    is_empty = any(NO_CODE in todo for todo in found)
    # No tracebacks, and no line for each test.
    quiet = {"PYTEST_ADDOPTS": f"--tb=no -rN {os.environ.get('PYTEST_ADDOPTS', '')}".strip()} if is_empty else {}
    try:
        with patch.dict(os.environ, quiet):
            yield
    finally:
        if found:
            shown = [*found[:_SHOWN], *([f"and {len(found) - _SHOWN} more"] if found[_SHOWN:] else [])]
            head = f"{len(found)} {'places are' if found[1:] else 'place is'} left to complete:"
            say("\n".join(["", head, *shown]))
        if is_empty:
            say('test failures of a kernel without code are not shown; `ARGS="-- --tb=short"` shows them')
