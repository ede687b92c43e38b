"""Tables for READMEs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(lines: Iterable[Sequence[str]]) -> str:
    """Format cells as a Markdown table. The second line has the directions of the columns."""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
