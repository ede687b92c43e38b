"""Tables in Markdown, and the places in pages for them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

_GUIDES = Path(__file__).parents[2] / "scripts/guides"


def markdown_table(lines: Iterable[Sequence[str]]) -> str:
    """Format cells as a Markdown table. The second line has the directions of the columns."""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def within(text: str, name: str, new: str | None = None) -> str:
    """Return what is between two marks in a page; or, with ``new``, the page with that in its place."""
    first, last = f"<!-- generated: {name} -->\n", "<!-- end -->\n"
    head, there, rest = text.partition(first)
    old, ends, tail = rest.partition(last)
    assert there and ends, f"no {first.strip()} with {last.strip()} below it"
    return old if new is None else f"{head}{there}{new}{ends}{tail}"


def write_figures(name: str, table: str, how: str, folder: Path = _GUIDES) -> None:
    """Write a table of figures and their date into the page that has a mark for them.

    Args:
        name: the name in the mark.
        table: the table.
        how: where and how they were measured.
        folder: the folder of the pages.
    """
    (page,) = (
        each for each in folder.glob("*.md") if f"<!-- generated: {name} -->\n" in each.read_text(encoding="utf-8")
    )
    new = f"{table}\n{how}, {datetime.date.today().isoformat()}.\n"
    page.write_text(within(page.read_text(encoding="utf-8"), name, new), encoding="utf-8")
