"""The table ``[tool.graft]`` of a pyproject.toml: its keys, the types of their values, and their lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.keys import KEYS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a pyproject.toml."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", todo="fix the syntax (https://toml.io)") from error


def table_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a pyproject.toml; an empty one if there is none."""
    tools = config.get("tool")
    table = tools.get("graft") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else {}


def natives_of(folder: Path, table: Mapping[str, Any]) -> list[Path]:
    """Return the native folders that the table of ``folder``'s pyproject.toml names."""
    return [(folder / each).resolve() for each in listed(table.get("native", ".")) if isinstance(each, str)]


def listed(value: Any) -> list[Any]:
    """Return what may be a text or a list as a list."""
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [None]


def faults_of(file: Path, table: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the keys of a table and the types of their values, each with its line."""
    text, faults = file.read_text(encoding="utf-8"), []
    for key, value in table.items():
        place = f"{file}:{line_of(text, key)}: [tool.graft]"
        if key not in KEYS:
            faults.append(f"{place} has no key `{key}`")
        elif not all(_is_texts(each) for each in _values(key, value)):
            faults.append(f"{place} {key} is not {KEYS[key].holds}")
    return faults


def _values(key: str, value: Any) -> list[Any]:
    if key != "cpu-flags":
        return [value]
    return [*value.values()] if isinstance(value, dict) else [None]


def _is_texts(value: Any) -> bool:
    return all(isinstance(each, str) and each and "\n" not in each for each in listed(value) or [None])


def line_of(text: str, key: str, value: str = "") -> int:
    """Return the line of a key of [tool.graft] in a pyproject.toml, or of a value there. tomllib does not tell."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*\[\s*tool\s*\.\s*graft\b", line)]
    first = starts[0] if starts else 0
    named = re.compile(rf"""\s*(\[\s*tool\s*\.\s*graft\s*\.\s*)?["']?{re.escape(key)}["']?\s*[\]=.]""")
    at = next((number for number in range(first, len(lines)) if named.match(lines[number])), first)
    # The whole value, or a flag that begins with it.
    held = re.compile(rf"""["']{re.escape(value)}(["'\s=]|$)""")
    return next((number for number in range(at, len(lines)) if value and held.search(lines[number])), at) + 1
