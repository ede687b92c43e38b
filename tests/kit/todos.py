"""What `make test` shows of the lines marked TODO, which `make new-op` writes where text is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from graft.core.console import say
from graft.new.skeleton import listed, todos

# The message of a kernel by `make new-op` until it is implemented. Until then every test fails with it.
NO_CODE = "TODO: implement it"


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
            say("\n".join(["", *listed(found)]))
        if is_empty:
            say('test failures of a kernel without code are not shown; `ARGS="-- --tb=short"` shows them')
