"""``graft.load_cell``: operators from the text of a notebook's cell.

The cell is C++. Its YAML is in its comments, and every text made from it keeps the cell's line numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from ..core.console import INFO, Listener, heard_by
from ..core.errors import GraftError, UsageError
from ..inputs.comments import without_comments
from ..inputs.spelling import is_schema, respelled
from . import api, loads
from .around import uncompiled

_BLOCK = re.compile(r"/\*[ \t]*yaml[ \t]*\n(.*?)\*/", re.S)
_OPEN_BLOCK = re.compile(r"/\*[ \t]*yaml\b")
_ENTRY = re.compile(r"\s*(?:-\s+)?(func|name)\s*:")
# A comment with a formula, and a comment that continues it, with more indented text.
_FORMULA = re.compile(r"[ \t]*// ?(\w+(?:[ \t]*,[ \t]*\w+)*)[ \t]*:(?!:)[ \t]*(.*)")
_MORE = re.compile(r"[ \t]*//(?=[ \t]{2})(.*)")
_COMMENT = re.compile(r"[ \t]*(?://.*)?")
# Words of formulas. A comment with one of them, for an unknown argument, is probably a mistake.
_OF_FORMULAS = re.compile(r"\b(?:grads?|auto_linear|auto_element_wise|not_implemented|non_differentiable)\b")

_SCHEMA = 'write %%graft "my_op(Tensor self) -> Tensor", or entries in a comment that begins with the line /* yaml'


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
    return load(read, name, _print if verbose else api.log_build, build, *flags)


def load(
    cell: Cell,
    name: str,
    listener: Listener,
    build: bool | None = None,
    cflags: Sequence[str] | None = None,
    cuda_cflags: Sequence[str] | None = None,
    include_paths: Sequence[str | Path] | None = None,
) -> api.Operators:
    """Load a cell. Pass messages to ``listener``, rewritten to name places in the cell."""
    from .inline import Texts  # slow to import
    from .told import Told

    functions, derivatives, cpp = cell.functions, cell.derivatives, cell.cpp
    told = Told(cell, Texts(functions, derivatives, cpp=cpp))
    try:
        # The listener is global. The lock keeps messages of other threads' loads from it.
        with loads.state().lock, heard_by(lambda level, text: listener(level, told.of(text))):
            operators: api.Operators = api.load_inline(
                functions,
                derivatives=derivatives,
                cpp=cpp,
                name=name,
                verbose=True,
                build=build,
                extra_cflags=cflags,
                extra_cuda_cflags=cuda_cflags,
                extra_include_paths=include_paths,
            )
            return operators
    except GraftError as error:
        raise told.retold(error) from None


def _print(level: int, text: str) -> None:
    if level >= INFO:
        print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Cell:
    """A cell, split into the texts of ``load_inline``.

    Args:
        text: the cell, with an empty line in place of the line with ``%%graft``.
        schema: the schema in that line; may be empty.
        line: the number of that line.
        magic: the text of that line.
    """

    text: str
    schema: str = ""
    line: int = 1
    magic: str = ""

    def __post_init__(self) -> None:
        operator, entries = self.schema.partition("(")[0].strip(), self._yaml["func"].strip()
        if self.schema and not is_schema(self.schema):
            self._refuse(self.line, f"{self.schema} is not a schema", _SCHEMA)
        if self.schema and entries:
            self._refuse(self.line, "there are a schema and entries", "write all operators as entries")
        if not (self.functions + self.derivatives).strip():
            self._refuse(self.line, "there is no schema", _SCHEMA)
        if self.schema and not self.cpp:
            self._refuse(self.line, f"there is no kernel for {operator}", "write it, in C++, below this line")

    @cached_property
    def lines(self) -> list[str]:
        """The lines as messages show them, with that of the magic or the schema."""
        lines = self.text.split("\n")
        lines[self.line - 1] = self.magic or self.schema
        return lines

    @property
    def functions(self) -> str:
        """native_functions.yaml, or the schema."""
        return self.schema or self._yaml["func"]

    @property
    def derivatives(self) -> str:
        """derivatives.yaml."""
        return self._yaml["name"]

    @property
    def cpp(self) -> str:
        """The C++; empty if there are only comments."""
        return self.text if without_comments(self.text).strip() else ""

    def excerpt(self, line: int, column: int = 0) -> list[str]:
        """Return a line with its number, and a mark below ``column``, unless it is 0, as g++ shows them."""
        if not 0 < line <= len(self.lines):
            return []
        return [f"{line:>5} | {self.lines[line - 1]}"] + ([f"      | {' ' * (column - 1)}^"] if column else [])

    @cached_property
    def _yaml(self) -> dict[str, str]:
        """The YAML with ``func`` and the YAML with ``name``, which includes formulas. Lines keep their numbers."""
        formulas = self._formulas()
        name = {self.line: f"- name: {respelled(self.schema)}"} if formulas else {}
        made: dict[str, dict[int, str]] = {"func": {}, "name": {**name, **formulas}}
        for first, lines in self._blocks:
            for start, end in _entries(lines):
                made[self._key(first + start, lines[start:end])] |= dict(enumerate(lines[start:end], first + start))
        return {
            key: "\n".join(lines.get(n, "") for n in range(1, max(lines, default=0) + 1)) for key, lines in made.items()
        }

    @cached_property
    def _blocks(self) -> list[tuple[int, list[str]]]:
        """The comments with YAML: the number of the first line, and the lines without their common indentation."""
        for opened in _OPEN_BLOCK.finditer(self.text):
            if not _BLOCK.match(self.text, opened.start()):
                todo = "write `/* yaml`, then the entries in lines of their own, then `*/`"
                self._refuse(self._number(opened.start()), "this comment has no entries, or no end", todo)
        return [(self._number(hit.start(1)), _unindented(hit[1].split("\n"))) for hit in _BLOCK.finditer(self.text)]

    def _key(self, number: int, entry: list[str]) -> str:
        """Return the first key of an entry, ``func`` or ``name``."""
        key = next((hit[1] for line in entry if (hit := _ENTRY.match(line))), "")
        if not key:
            self._refuse(number, "an entry without func: and without name:", "begin it with `- func:` or `- name:`")
        return key

    def _formulas(self) -> dict[int, str]:
        """Return the formulas in the comments at the top: lines of YAML by line number."""
        made: dict[int, str] = {}
        for number, line in enumerate(self.text.split("\n"), 1):
            if not _COMMENT.fullmatch(line):
                break
            more, hit = _MORE.fullmatch(line), _FORMULA.fullmatch(line)
            if more and number - 1 in made:
                made[number - 1] = made[number - 1].removesuffix("'")
                made[number] = f"  {_doubled(more[1])}'"
            elif hit and self._is_formula(number, hit):
                made[number] = f"  {hit[1]}: {_quoted(hit[2].rstrip())}"
        return made

    def _is_formula(self, number: int, hit: re.Match[str]) -> bool:
        """Return whether a comment is a formula for arguments or results. Refuse one for an unknown argument."""
        known = re.findall(r"\w+", self.schema)
        unknown = [each for each in re.findall(r"\w+", hit[1]) if each not in known and not each.startswith("result")]
        if self.schema and not unknown:
            return True
        if _OF_FORMULAS.search(hit[2]) and self.schema:
            what = f"{self.schema.partition('(')[0].strip()} has no argument {unknown[0]}"
            self._refuse(number, what, "name an argument, or `result`")
        if _OF_FORMULAS.search(hit[2]):
            what, todo = "a formula, but no schema in the line of %%graft", "write it into an entry with name:"
            self._refuse(number, what, todo)
        return False

    def _number(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def _refuse(self, number: int, what: str, todo: str) -> NoReturn:
        raise UsageError("\n".join([f"cell:{number}: {what}", *self.excerpt(number)]), todo=todo)


def _entries(lines: list[str]) -> list[tuple[int, int]]:
    """Return where each entry of a YAML list begins, and where it ends."""
    starts = [number for number, line in enumerate(lines) if line.startswith("-")]
    used = [number for number, line in enumerate(lines) if line.strip() and not line.startswith("#")]
    starts = sorted({*starts, *used[:1]})
    return list(zip(starts, [*starts[1:], len(lines)], strict=False))


def _unindented(lines: list[str]) -> list[str]:
    """Remove the common indentation of lines of YAML."""
    used = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    indent = min((len(line) - len(line.lstrip()) for line in used), default=0)
    return [line[min(indent, len(line) - len(line.lstrip())) :] if line.strip() else "" for line in lines]


def _quoted(formula: str) -> str:
    """Quote a formula for YAML, unless it is quoted already."""
    is_quoted = len(formula) > 1 and formula[0] == formula[-1] and formula[0] in "\"'"
    return formula if is_quoted else f"'{_doubled(formula)}'"


def _doubled(text: str) -> str:
    return text.rstrip().replace("'", "''")
