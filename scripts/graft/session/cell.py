"""The text of a notebook's cell, split into the texts of ``load_inline``.

The cell is C++. Its YAML is in its comments, and every text made from it keeps the cell's line numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from ..core.errors import UsageError
from ..cpp.tokens import without_comments
from ..inputs.spelling import is_schema, respelled

_BLOCK = re.compile(r"/\*[ \t]*yaml[ \t]*\n(.*?)\*/", re.S)
_OPEN_BLOCK = re.compile(r"/\*[ \t]*yaml\b")
_ENTRY = re.compile(r"\s*(?:-\s+)?(func|name)\s*:")
# A comment with a formula, and a comment that continues it, with more indented text.
_FORMULA = re.compile(r"[ \t]*// ?(\w+(?:[ \t]*,[ \t]*\w+)*)[ \t]*:(?!:)[ \t]*(.*)")
_MORE = re.compile(r"[ \t]*//(?=[ \t]{2})(.*)")
_COMMENT = re.compile(r"[ \t]*(?://.*)?")
# Words of formulas. A comment with one of them, for an unknown argument, is probably a mistake.
_OF_FORMULAS = re.compile(r"\b(?:grads?|auto_linear|auto_element_wise|not_implemented|non_differentiable)\b")

# A comment that is an expression of C++, since no two words follow each other.
_CODE = re.compile(r"[ \t]*//[ \t]*((?!.*(?:\w\s+\w|:\s))[\w\s.,:()<>*+/-]*[\w)])\s*")
# The name of the first tensor in a schema.
_TENSOR = re.compile(r"\bTensor\??(?:\([^)]*\))?(?:\[\d*\])? (\w+)")

_SCHEMA = 'write %%graft "my_op(Tensor self) -> Tensor", or entries in a comment that begins with the line /* yaml'


@dataclass(frozen=True)
class Written:
    """A text as a user wrote it, for messages.

    Args:
        label: what messages call it: an argument of ``load_inline``, or ``cell``.
        lines: its lines.
        schema: the schema, if the text has one instead of entries.
        line: the number of the line with the schema.
    """

    label: str
    lines: Sequence[str]
    schema: str = ""
    line: int = 1

    def excerpt(self, line: int, column: int = 0) -> list[str]:
        """Return a line with its number, and a mark below ``column``, unless it is 0, as g++ shows them."""
        if not 0 < line <= len(self.lines):
            return []
        return [f"{line:>5} | {self.lines[line - 1]}"] + ([f"      | {' ' * (column - 1)}^"] if column else [])


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
    def written(self) -> Written:
        """The cell as messages show it, with the line of the magic or the schema."""
        lines = self.text.split("\n")
        lines[self.line - 1] = self.magic or self.schema
        return Written("cell", lines, self.schema, self.line)

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
            elif self.schema and not hit and _OF_FORMULAS.search(line) and (code := _CODE.fullmatch(line)):
                tensor = _TENSOR.search(self.schema)
                todo = f"write `// {tensor[1] if tensor else 'self'}: {code[1]}`"
                self._refuse(number, "a formula without the argument that it is for", todo)
        return made

    def _is_formula(self, number: int, hit: re.Match[str]) -> bool:
        """Return whether a comment is a formula for arguments or results. Refuse one for an unknown argument."""
        known = re.findall(r"\w+", self.schema)
        unknown = [each for each in re.findall(r"\w+", hit[1]) if each not in known and not each.startswith("result")]
        if self.schema and not unknown:
            return True
        if _OF_FORMULAS.search(hit[2]) and self.schema:
            what = f"{self.schema.partition('(')[0].strip()} has no argument {unknown[0]}"
            close = difflib.get_close_matches(unknown[0], [*known, "result"], n=1)
            self._refuse(number, what, f"did you mean `{close[0]}`?" if close else "name an argument, or `result`")
        if _OF_FORMULAS.search(hit[2]):
            what, todo = "a formula, but no schema in the line of %%graft", "write it into an entry with name:"
            self._refuse(number, what, todo)
        return False

    def _number(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def _refuse(self, number: int, what: str, todo: str) -> NoReturn:
        raise UsageError("\n".join([f"cell:{number}: {what}", *self.written.excerpt(number)]), todo=todo)


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
