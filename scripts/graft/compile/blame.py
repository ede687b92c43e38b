"""Attribute errors in generated code to entries of the native folder's YAML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..codegen.merge import MergedFile


@dataclass(frozen=True)
class Entry:
    """An entry of one of the YAML files.

    Args:
        file: the YAML file.
        line: its first line, counted from 1.
        schema: the schema of the operator.
        text: its lines.
    """

    file: Path
    line: int
    schema: str
    text: tuple[str, ...]

    @property
    def name(self) -> str:
        """The operator's name with its overload name."""
        return self.schema.partition("(")[0]


def entries(file: Path) -> list[Entry]:
    """Return the entries of ``file``; none if it does not exist."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    starts = [(n, m[1]) for n, line in enumerate(lines) if (m := re.match(r"\s*- (?:func|name):\s*(.+?)\s*$", line))]
    ends = [*(number for number, _ in starts), len(lines)][1 : len(starts) + 1]
    return [Entry(file, n + 1, schema, tuple(lines[n:end])) for (n, schema), end in zip(starts, ends, strict=True)]


def of_torchgen(message: str, merged: Sequence[MergedFile]) -> str:
    """Return torchgen's ``message`` with places in the merged YAML replaced by those in the native folder.

    If torchgen names an operator without its place, the place is looked up.
    """
    for file in merged:

        def place(match: re.Match[str], file: MergedFile = file) -> str:
            number = int(match[1]) - file.offset
            return f"{file.source}:{number}" if number > 0 else match[0]

        message = re.sub(rf"{re.escape(str(file.path))}:(\d+)", place, message)
    if not any(f"{file.source}:" in message for file in merged):
        quoted = [e for file in merged for e in entries(file.source) if e.schema in message]
        message = "\n".join([*(f"{e.file}:{e.line}: {e.schema}" for e in quoted), message])
    return message
