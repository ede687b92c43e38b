"""``%load_ext graft``: add the magic ``%%graft``, which loads the cell below it like ``load_cell``.

The notebook updates one line of progress in place. Errors are shown without a traceback of this package.
"""

from __future__ import annotations

import re
from typing import Any

from ..core.console import INFO, WARNING
from ..core.errors import UsageError
from .api import Operators
from .cell import Cell
from .cells import load
from .progress import Line

# A word of the line: quoted as a whole, or without blanks.
_WORDS = re.compile(r"""(?:"[^"]*"|'[^']*')(?=\s|$)|(?P<word>\S+)""")
_BUILT = re.compile(r": (built in [\d.]+ s)$")
# Show progress for a build that takes longer than this, in seconds.
_SHOWN_AFTER = 1.0


HELP = """Build the operators of a cell, and add them to torch.

%%graft "my_op(Tensor self) -> Tensor" [--name NAME] [--verbose]
// self: grad * 2
Tensor my_op(const Tensor& self) { return self * 2; }

The line has the schema of one operator. Comments at the top are formulas, as in derivatives.yaml. Several operators are
entries of native_functions.yaml and derivatives.yaml, in a comment that begins with the line `/* yaml`.

--name NAME   the name of the load; by default that of the first operator
--verbose     show all lines of the build
"""


def load_ipython_extension(ipython: Any) -> None:
    """Add ``%%graft``."""

    def graft(line: str, cell: str | None = None) -> Operators | None:
        return _load(ipython, line, cell)

    graft.__doc__ = HELP
    graft._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]
    ipython.register_magic_function(graft, "line_cell", "graft")


def unload_ipython_extension(ipython: Any) -> None:
    """Remove ``%%graft``. Loads stay."""
    for kind in ("line", "cell"):
        ipython.magics_manager.magics[kind].pop("graft", None)


def _load(ipython: Any, line: str, text: str | None) -> Operators | None:
    if line.split() in (["--help"], ["-h"], ["-?"]):
        print(HELP)
        return None
    if text is None:
        raise UsageError("%graft: a cell begins with %%graft", todo="`%graft --help` shows what it has")
    schema, name, is_verbose = arguments(line)
    above = _lines_above(ipython, text)
    cell = Cell("\n" * (above + 1) + text, schema, above + 1, f"%%graft {line}".rstrip())
    progress = _Progress(ipython, is_verbose)
    operators = None
    try:
        operators = load(cell, name, progress.hear)
        return operators
    finally:
        progress.end(operators)


def arguments(line: str) -> tuple[str, str, bool]:
    """Parse the line of the magic. Return the schema, the name, and whether to show all progress.

    Raises:
        UsageError: an option is unknown, or there are several schemas.
    """
    words = [*_WORDS.finditer(line)]
    schema: list[str] = []
    name, is_verbose = "", False
    while words:
        word = words.pop(0)
        option, _, value = (word["word"] or "").partition("=")
        if option == "--name" and (value or words):
            name = value or words.pop(0)[0].strip("\"'")
        elif option == "--verbose" and not value:
            is_verbose = True
        elif option.startswith("--"):
            raise UsageError(
                f"%%graft: {word[0]} is no option, or lacks its value", todo="use --name NAME or --verbose"
            )
        else:
            schema.append(word["word"] or word[0][1:-1])
    if line.count("->") > 1:
        todo = "write each as `- func: ...` in a comment that begins with the line /* yaml"
        raise UsageError("%%graft: its line takes one schema", todo=todo)
    return " ".join(schema), name, is_verbose


def _lines_above(ipython: Any, text: str) -> int:
    """Return how many empty lines there are above the magic, which IPython leaves out."""
    raw = ipython.history_manager.input_hist_raw[-1] if ipython.history_manager else ""
    empty = raw[: len(raw) - len(raw.lstrip())]
    return empty.count("\n") if raw.rstrip().endswith(text.rstrip()) else 0


class _Progress:
    """What a cell shows of a build: nothing if nothing is built; otherwise one line, and the warnings.

    Args:
        ipython: the shell.
        is_verbose: whether each line stays.
    """

    def __init__(self, ipython: Any, is_verbose: bool) -> None:
        self._is_verbose = is_verbose
        self._shown = Line(ipython, _SHOWN_AFTER)
        self._line = ""
        self._told: set[str] = set()

    def hear(self, level: int, text: str) -> None:
        """Show a line of a build."""
        if level >= (INFO if self._is_verbose else WARNING):
            if text not in self._told:
                self._told.add(text)
                self._shown.print(text)
            return
        self._line = text.partition("\n")[0]
        self._shown.update(self._line)

    def end(self, operators: Operators | None) -> None:
        """Show what was built, or the last line of a build that failed."""
        built = _BUILT.search(self._line)
        if built and operators:
            self._line = f"{operators._name}: {built[1]}"
        if built or self._shown.is_shown:
            self._shown.end(self._line)
