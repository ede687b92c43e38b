"""The table ``[tool.graft]`` of a pyproject.toml: its keys, the types of their values, and their lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.keys import KEYS, OF_EXTENSIONS, SHARED_WITH_EXTENSIONS

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a pyproject.toml."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", todo="fix the syntax (https://toml.io)") from error


def table_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table [tool.graft] of a pyproject.toml; an empty one if there is none."""
    tools = config.get("tool")
    table = tools.get("graft") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else {}


def natives_of(folder: Path, table: Mapping[str, Any]) -> list[Path]:
    """Return the native folders that the table of ``folder``'s pyproject.toml names."""
    return [(folder / each).resolve() for each in listed(table.get("native", ".")) if isinstance(each, str)]


def listed(value: Any) -> list[Any]:
    """Return a string or a list as a list; ``[None]`` for any other value."""
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [None]


def faults_of(file: Path, table: Mapping[str, Any]) -> list[str]:
    """Return errors about the keys of a table and the types of their values, each with its line."""
    text, faults = file.read_text(encoding="utf-8"), []
    for key, value in table.items():
        place = f"{file}:{line_of(text, key)}: [tool.graft]"
        if key not in KEYS:
            faults.append(f"{place} has no key `{key}`")
        elif key == "extensions" and isinstance(value, list) and all(isinstance(each, dict) for each in value):
            faults += [fault for number, each in enumerate(value) for fault in _of_extension(file, text, number, each)]
        elif not all(_is_texts(each) for each in _values(key, value)):
            faults.append(f"{place} {key} is not {KEYS[key].holds}")
    return faults


def _of_extension(file: Path, text: str, number: int, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield errors about the keys of an extension's table and the types of their values."""
    known = OF_EXTENSIONS | {key: KEYS[key] for key in SHARED_WITH_EXTENSIONS}
    if "name" not in table:
        yield f"{file}:{line_of(text, 'extensions', table=number)}: {name_of_table(number)} has no name"
    for key, value in table.items():
        place = f"{file}:{line_of(text, key, table=number)}: {name_of_table(number)}"
        if key not in known:
            yield f"{place} has no key `{key}`"
        elif not (isinstance(value, str) if key in ("name", "suffix") else True) or not _is_texts(value):
            yield f"{place} {key} is not {known[key].holds}"


def _values(key: str, value: Any) -> list[Any]:
    if key not in ("cpu-flags", "releases", "packages", "extensions"):
        return [value]
    return [*value.values()] if isinstance(value, dict) and key != "extensions" else [None]


def _is_texts(value: Any) -> bool:
    return all(isinstance(each, str) and each and "\n" not in each for each in listed(value) or [None])


def name_of_table(number: int | None) -> str:
    """Return the name of [tool.graft] in messages, or of an extension's table if ``number`` is given."""
    return "[tool.graft]" if number is None else "[[tool.graft.extensions]]"


def line_of(text: str, key: str, value: str = "", *, table: int | None = None) -> int:
    """Return the line of a key of [tool.graft] in a pyproject.toml, or of a value there; with ``table``, in the table
    of the extension with that number. tomllib does not return lines.
    """
    lines = text.splitlines()
    header = (
        r"\s*\[\s*tool\s*\.\s*graft\b" if table is None else r"\s*\[\[\s*tool\s*\.\s*graft\s*\.\s*extensions\s*\]\]"
    )
    starts = [number for number, line in enumerate(lines) if re.match(header, line)]
    first = starts[min(table or 0, len(starts) - 1)] if starts else 0
    if key == "extensions" and table is not None and starts:
        return first + 1
    named = re.compile(rf"""\s*(\[?\[\s*tool\s*\.\s*graft\s*\.\s*)?["']?{re.escape(key)}["']?\s*[\]=.]""")
    at = next((number for number in range(first, len(lines)) if named.match(lines[number])), first)
    # The whole value, or a flag that begins with it.
    held = re.compile(rf"""["']{re.escape(value)}(["'\s=]|$)""")
    return next((number for number in range(at, len(lines)) if value and held.search(lines[number])), at) + 1
