"""Hints for common compiler errors in kernels: the table ``hints.yaml``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

_TABLE = Path(__file__).with_name("hints.yaml")

# The messages of g++ and nvcc for an unknown name.
_NO_SUCH_NAME = (
    r"'{0}' (?:was not declared|is not a member of|has not been declared|(?:in namespace .* )?does not name a)"
    r"|identifier \"{0}\" is undefined|has no member \"{0}\""
)
# The message of g++ for an unknown macro, which it parses as a function.
_MACRO = r"expected constructor, destructor, or type conversion before|has not been declared"


@dataclass(frozen=True)
class Hint:
    """A row of the table.

    Args:
        says: a pattern for the message.
        line: a pattern for the source line; empty to match any.
        include: the missing header; empty if none is missing.
        write: what else to write.
        example: C++ code that produces the message.
        fixed: the corrected code.
    """

    says: str
    line: str
    include: str
    write: str
    example: str
    fixed: str

    def text(self, message: str, line: str, has_header: Callable[[str], bool]) -> str:
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
        return added if has_header(header) else ""


@cache
def hints() -> tuple[Hint, ...]:
    """Return the rows of the table."""
    return tuple(row for each in yaml.safe_load(_TABLE.read_text(encoding="utf-8")) for row in _rows(each))


def hint_for(message: str, line: str, has_header: Callable[[str], bool]) -> str:
    """Return the hint of the first matching row; empty if none matches.

    Args:
        message: the compiler's message.
        line: the source line of the error.
        has_header: returns whether the base or the folder has a header.
    """
    return next((text for hint in hints() if (text := hint.text(message, line, has_header))), "")


def _rows(row: dict[str, str]) -> list[Hint]:
    """Return a row, or two rows if ``name`` is shorthand for a name and a macro."""
    include, write, example = (row.get(key, "") for key in ("include", "write", "example"))
    fixed = row.get("fixed") or f"#include <{include}>\n{example}"
    if name := row.get("name"):
        places = [(_NO_SUCH_NAME.replace("{0}", f"(?:{name})"), ""), (_MACRO, rf"\b(?:{name})\(")]
    else:
        places = [(row["says"], row.get("line", ""))]
    return [Hint(says, line, include, write, example, fixed) for says, line in places]
