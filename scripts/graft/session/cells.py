"""``graft.load_cell``: operators from the text of a notebook's cell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..core.console import INFO, Listener, heard_by
from ..core.errors import UsageError
from . import api, loads
from .call_guards import uncompiled
from .cell import Cell


@uncompiled
def load_cell(
    cell: str,
    schema: str = "",
    *,
    name: str = "",
    verbose: bool = False,
    build: bool | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | Path] | None = None,
) -> api.Operators:
    """Like ``load_inline``, but take one text: that of a cell with ``%%graft``, whose first line has the schema.

    Comments at the very top are formulas, as in derivatives.yaml: ``// self: grad * 2``. Instead of a schema, the cell
    may have entries of native_functions.yaml and derivatives.yaml, in a comment that begins with the line ``/* yaml``.

    Args:
        cell: the text, in C++. Messages count its lines from the line of the schema, or of the opening quotes.
        schema: the schema; empty if the cell has entries.
        name: the name of the load; by default that of the first operator. An earlier load of this name is replaced.
        verbose: whether to print the progress. Otherwise it goes to the logger ``graft``.
        build: whether to build operators that are not built yet. By default, only ``GRAFT_BUILD=0`` prevents it.
        extra_cflags: flags of the C++ compiler for the cell.
        extra_cuda_cflags: flags of nvcc.
        extra_include_paths: folders of headers.

    Raises:
        BuildError: the cell has errors; ``findings`` has their places. The process keeps the operators that it had.
        MissingError: the operators are not built, and building is off.
        GraftError: something else failed; for example, no compiler was found.
    """
    for what, text in (("cell", cell), ("schema", schema)):
        if not isinstance(text, str):
            raise UsageError(f"{what}: {type(text).__name__} instead of text", todo="pass the text of a cell")
    read = Cell(cell if cell.startswith("\n") else f"\n{cell}", schema.strip())
    flags = (extra_cflags, extra_cuda_cflags, extra_include_paths)
    return load(read, name, _print if verbose else api.log_build, build, flags)


@uncompiled
def load(
    cell: Cell,
    name: str,
    listener: Listener,
    build: bool | None = None,
    flags: api.Flags = (None, None, None),
) -> api.Operators:
    """Load a cell. Pass messages to ``listener``."""
    from .inline import Texts  # slow to import

    texts = Texts(cell.functions, cell.derivatives, cpp=cell.cpp)
    # The listener is global. The lock keeps messages of other threads' loads from it.
    with loads.state().lock, heard_by(listener):
        return api.load_texts(texts, name, True, build, flags, cell=cell.written)


def _print(level: int, text: str) -> None:
    if level >= INFO:
        print(text, file=sys.stderr, flush=True)
