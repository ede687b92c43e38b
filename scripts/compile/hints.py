"""What helps against the compiler's errors that people meet when they write kernels: the table ``hints.yaml``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

_TABLE = Path(__file__).with_name("hints.yaml")

# How g++ and nvcc say that there is no such name.
_NO_SUCH_NAME = (
    r"'{0}' (?:was not declared|is not a member of|has not been declared|(?:in namespace .* )?does not name a)"
    r"|identifier \"{0}\" is undefined|has no member \"{0}\""
)
# What g++ says of a macro that it does not know, which it takes for a function.
_MACRO = r"expected constructor, destructor, or type conversion before|has not been declared"


@dataclass(frozen=True)
class Hint:
    """A row of the table.

    Args:
        says: what the message must match.
        line: what the source line must match; empty if any does.
        include: the header that is missing; empty if none is.
        write: what else to write.
        example: C++ that makes the compiler say so.
        fixed: the same as it should be.
    """

    says: str
    line: str
    include: str
    write: str
    example: str
    fixed: str

    def text(self, message: str, line: str, has_header: Callable[[str], bool]) -> str:
        """What to write against an error; empty if this row does not fit it."""
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
    """The rows of the table."""
    return tuple(row for each in yaml.safe_load(_TABLE.read_text(encoding="utf-8")) for row in _rows(each))


def hint_for(message: str, line: str, has_header: Callable[[str], bool]) -> str:
    """What the first row that fits says; empty if none does.

    Args:
        message: of the compiler.
        line: the source line that it is about.
        has_header: whether the base or the folder has a header.
    """
    return next((text for hint in hints() if (text := hint.text(message, line, has_header))), "")


def header_in(folders: Sequence[Path]) -> Callable[[str], bool]:
    """What tells whether one of ``folders`` has a header."""
    return lambda name: any((folder / name).is_file() for folder in folders)


def _rows(row: dict[str, str]) -> list[Hint]:
    """A row, or two where ``name`` is short for a name and for a macro."""
    include, write, example = (row.get(key, "") for key in ("include", "write", "example"))
    fixed = row.get("fixed") or f"#include <{include}>\n{example}"
    if name := row.get("name"):
        places = [(_NO_SUCH_NAME.replace("{0}", f"(?:{name})"), ""), (_MACRO, rf"\b(?:{name})\(")]
    else:
        places = [(row["says"], row.get("line", ""))]
    return [Hint(says, line, include, write, example, fixed) for says, line in places]
