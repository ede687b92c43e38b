"""The codes of findings, as ``codes.md`` explains them: a section for each."""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import UsageError
from . import nearest

# Has a heading for each code. Below it are a sentence, what to know and to write, and an example as a difference.
EXPLAINED = Path(__file__).with_name("codes.md")


def sections() -> dict[str, str]:
    """Return the explanation of each code."""
    parts = re.split(r"^### (.+)\n", EXPLAINED.read_text(encoding="utf-8"), flags=re.M)
    return {code: text.partition("\n## ")[0].strip() for code, text in zip(parts[1::2], parts[2::2], strict=True)}


def explained(code: str) -> str:
    """Return what ``graft check --explain`` prints for a code; for an empty one, all codes with a line for each.

    Raises:
        UsageError: there is no such code.
    """
    known = sections()
    if not code:
        width = max(map(len, known))
        return "\n".join(f"{each:<{width}}  {text.splitlines()[0]}" for each, text in known.items())
    if code not in known:
        todo = nearest(code, known, otherwise="`make check ARGS=--explain` lists the codes")
        raise UsageError(f"no finding of `make check` has the code {code}", todo=todo)
    return re.sub(r"^```.*\n?", "", f"{code}: {known[code]}", flags=re.M).rstrip()
