"""``PYTHONPATH=scripts python -m tests.kit.options_table``: write the table of scripts/guides/options.md."""

from __future__ import annotations

from collections.abc import Iterator

from graft.cli import VERBS
from graft.core.layout import REPOSITORY
from graft.options import OPTIONS

from .__main__ import VERBS as KIT
from .markdown import markdown_table

PAGE = REPOSITORY / "scripts/guides/options.md"

# The table is between these.
_BEGIN, _END = "<!-- options: tests/kit/options_table.py writes this table -->\n", "<!-- end of options -->\n"

# Defaults that differ between machines.
_DEFAULTS = {"native": "`native`", "jobs": "all cores", "python": "that of the command"}


def with_table(text: str) -> str:
    """Return the README with the table of today's options."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + markdown_table(_rows()) + _END + rest.split(_END)[1]


def _rows() -> Iterator[tuple[str, ...]]:
    yield "make", "`graft`", "value", "default", "verbs of `graft`", ""
    yield ("---",) * 6
    verbs = [*VERBS, *(verb for verb in KIT if verb.name == "test")]
    for key, option in OPTIONS.items():
        takers = [verb.name for verb in verbs if key in verb.takes.split()]
        default = _DEFAULTS.get(key) or (f"`{option.default}`" if option.default else "")
        yield f"`{option.word}`", f"`{option.flag}`", option.holds, default, ", ".join(takers), option.help


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
