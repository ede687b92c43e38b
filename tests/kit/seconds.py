"""What the tests cost, in seconds: the last measurements, and the tables of tests/README.md, which are made of them.

After .ci/run, this takes what it measured, from build/costs; parts that were not measured keep their numbers:

    PYTHONPATH=scripts python3 -m tests.kit.seconds "warm cache"
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graft.core.files import write_atomically
from graft.core.layout import HOME, REPOSITORY

from .kept import commit
from .markdown import within
from .processor import machine

# What each part cost, written by ``make test`` of the shipped wheel.
COSTS = HOME / "costs"

README = REPOSITORY / "tests/README.md"
_FILE = Path(__file__).with_name("seconds.json")
_PARTS = re.compile(r"--parts ([a-z ]+?) --")


def measured() -> dict[str, Any]:
    """Return the measurements of each part: ``prepare`` and then ``wall`` seconds, ``cpu`` seconds of the tests, and
    ``how`` they were measured.
    """
    return json.loads(_FILE.read_text(encoding="utf-8"))


def seconds_of(kind: str, parts: Mapping[str, Any]) -> float:
    """Return how long a part takes, with its preparation."""
    return float(parts[kind]["wall"] + parts[kind]["prepare"])


def costs_of_files(kind: str) -> Path:
    """Return where the plugin ``costs`` writes the seconds of each test file of a part."""
    return COSTS / f"files/{kind}.json"


def keep(kind: str, seconds: Mapping[str, float], processes: int) -> None:
    """Keep the seconds of a whole part, and how they were measured, for ``write``."""
    name = commit() if (REPOSITORY / ".git").exists() else "no commit"
    how = f"JOBS={processes} on {machine()}, {datetime.date.today().isoformat()}, {name}"
    part = {"how": how, **{name: round(each) for name, each in seconds.items()}}
    write_atomically(COSTS / f"{kind}.json", json.dumps(part) + "\n")


def with_tables(text: str, parts: Mapping[str, Any]) -> str:
    """Return tests/README.md with the seconds of the parts."""
    text = within(text, "seconds", _after_an_edit(within(text, "seconds"), parts))
    return within(text, "costs", _of_parts(parts))


def _after_an_edit(table: str, parts: Mapping[str, Any]) -> str:
    """Return the table with another last column: the sum of the parts that a command names."""
    head, line, *rows = table.splitlines()
    made = []
    for row in rows:
        kinds = found[1].split() if (found := _PARTS.search(row)) and "NATIVE" not in row else []
        is_known = kinds and all(kind in parts for kind in kinds)
        seconds = f"{sum(seconds_of(kind, parts) for kind in kinds):.0f} " if is_known else ""
        made.append(f"{row.rpartition('` |')[0]}` | {seconds}|")
    return "\n".join([head, line, *made, ""])


def _of_parts(parts: Mapping[str, Any]) -> str:
    lines = ["| part | seconds | built before, in seconds | CPU seconds |", "|---|--:|--:|--:|"]
    measured: dict[str, list[str]] = {}
    for kind, each in parts.items():
        numbers = [f"{each[name]:,.0f}" if each[name] else "" for name in ("wall", "prepare", "cpu")]
        lines.append(f"| `{kind}` | {' | '.join(numbers)} |")
        measured.setdefault(each["how"], []).append(f"`{kind}`")
    return "\n".join([*lines, "", *(f"- {', '.join(kinds)}: {how}" for how, kinds in measured.items()), ""])


def write(cache: str) -> None:
    """Take the measurements of the last run, and write the tables."""
    parts = measured()
    for path in COSTS.glob("*.json"):
        part = json.loads(path.read_text(encoding="utf-8"))
        parts[path.stem] = {**part, "how": f"{part['how']}, {cache}"}
    parts = dict(sorted(parts.items()))
    _FILE.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    README.write_text(with_tables(README.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    write(*sys.argv[1:])
