"""Find the line of a YAML list whose indentation differs from that of its siblings. YAML parsers report a colon in that
line instead, or a line below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The line of an entry or of a key.
_LINE = re.compile(r"(?P<indent> *)(?P<dash>- +)?[\w.]+:(?P<rest>\s.*|$)")


@dataclass(frozen=True)
class Misplaced:
    """A line, counted from 0, its indentation, and the nearest indentation of its siblings: one, or two."""

    line: int
    indent: int
    beside: str


def misplaced(text: str) -> Misplaced | None:
    """Return the first entry or key with an indentation of its own that does not begin a list or a mapping."""
    entries: set[int] = set()
    keys: set[int] = set()
    is_open = True
    for number, line in enumerate(text.splitlines()):
        if not (match := _LINE.match(line)):
            continue
        indent = len(match["indent"])
        beside = entries if match["dash"] else keys
        if beside and indent not in beside and not is_open:
            nearest = min(abs(each - indent) for each in beside)
            return Misplaced(number, indent, " or ".join(str(n) for n in sorted(beside) if abs(n - indent) == nearest))
        beside.add(indent)
        entries = {each for each in entries if each <= indent}
        keys = {each for each in keys if each <= indent}
        if match["dash"]:
            keys.add(match.end("dash"))
        is_open = not match["rest"].partition(" #")[0].strip()
    return None
