"""Hints for errors of compilers: the table in ``hints.yaml``, and instructions that a CPU capability lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from .diagnostics import Diagnostic

_TABLE = Path(__file__).with_name("hints.yaml")

# The messages of g++ and nvcc for an unknown name.
_NO_SUCH_NAME = (
    r"'{0}' (?:was not declared|is not a member of|has not been declared|(?:in namespace .* )?does not name a)"
    r"|identifier \"{0}\" is undefined|has no member \"{0}\""
)
# The message of g++ for an unknown macro, which it parses as a function.
_MACRO = r"expected constructor, destructor, or type conversion before|has not been declared"

_MISMATCH = "target specific option mismatch"
# In g++'s headers, the condition above functions that need a processor feature.
_GUARD = re.compile(r"^#if.*?\b(__\w+__)\b.*\n(?:#pragma GCC push_options\n)?#pragma GCC target", re.M)


@dataclass(frozen=True)
class Hint:
    """A row of the table. ``hints.yaml`` describes the fields. A field that a row lacks is empty."""

    says: str
    line: str
    include: str
    write: str

    def text(self, message: str, line: str, includes: Iterable[Path]) -> str:
        """Return the hint for an error; empty if this row does not match."""
        said, read = re.search(self.says, message), re.search(self.line, line)
        if not said or not read:
            return ""
        found = [group for group in (*read.groups(), *said.groups()) if group]
        fill = (*found, *[""] * 2)
        header, write = self.include.format(*fill), self.write.format(*fill)
        if not header:
            return write
        added = f"add `#include <{header}>`" + (f", {write}" if write else "")
        return added if any((folder / header).is_file() for folder in includes) else ""


@cache
def hints() -> tuple[Hint, ...]:
    """Return the rows of the table."""
    return tuple(row for each in yaml.safe_load(_TABLE.read_text(encoding="utf-8")) for row in _rows(each))


def hint_for(message: str, line: str, includes: Iterable[Path]) -> str:
    """Return the hint of the first row that matches a message and its source line; empty if none does."""
    return next((text for hint in hints() if (text := hint.text(message, line, includes))), "")


def _rows(row: dict[str, str]) -> list[Hint]:
    """Return a row, or two rows if ``name`` is shorthand for a name and a macro."""
    if name := row.get("name"):
        places = [(_NO_SUCH_NAME.replace("{0}", f"(?:{name})"), ""), (_MACRO, rf"\b(?:{name})\(")]
    else:
        places = [(row["says"], row.get("line", ""))]
    return [Hint(says, line, row.get("include", ""), row.get("write", "")) for says, line in places]


def hint_of_capability(error: Diagnostic) -> str:
    """Return the hint for a call of an intrinsic that the source's CPU capability lacks; empty for other errors."""
    if _MISMATCH not in error.message:
        return ""
    guard = _guard_above(Path(error.file), error.line)
    capability, _, flags = error.compiled_for.partition(": ")
    with_what = f"{capability} is compiled with {flags}" if capability else "this file is compiled for any processor"
    what = f"write the call below `#ifdef {guard}`" if guard else "call it only where a macro says that it is there"
    more = "`cpu-flags` in pyproject.toml compile a file for more"
    return f"{with_what}; {what}, and another way for processors without it; {more}"


def _guard_above(header: Path, line: int) -> str:
    """Return the macro that guards the functions at a line of g++'s header; empty if there is none."""
    try:
        lines = header.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError:
        return ""
    found = _GUARD.findall("".join(lines[:line]))
    return str(found[-1]) if found else ""
