"""Summarize the compiler's output on one screen for each file: the first error of each kind, with a hint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from .blame import formula_of
from .diagnostics import Diagnostic, diagnostics
from .hints import hint_for

# Kinds of errors shown for one file: with source lines, hints and counts they fill a screen.
_KINDS = 6
# Characters shown of one message; those of templates can take pages.
_WIDTH = 300


def digest(output: Iterable[str], native: Path, has_header: Callable[[str], bool]) -> str:
    """Return the first error of each kind in each file; empty if the output has no recognizable error.

    Args:
        output: the compilers' output lines, with file names of ``native``.
        native: the folder with the user's files.
        has_header: returns whether the base or the folder has a header.
    """
    files: dict[str, dict[str, list[Diagnostic]]] = {}
    for each in diagnostics(output, native):
        _blame_formula(each, native)
        kinds = files.setdefault(each.user[0] if each.user else each.file, {})
        kinds.setdefault(each.kind, []).append(each)
    return "\n".join(_of_file(file, kinds, native, has_header) for file, kinds in files.items())


def _blame_formula(error: Diagnostic, native: Path) -> None:
    """For an error in generated code, name the formula that it was generated from."""
    if error.user is None and (entry := formula_of(error.function, native)):
        error.user = (str(entry.file), entry.line, 0)
        error.message = f"a formula of {entry.operator} is not valid C++: {error.message}"


def _of_file(file: str, kinds: dict[str, list[Diagnostic]], native: Path, has_header: Callable[[str], bool]) -> str:
    shown = [line for errors in list(kinds.values())[:_KINDS] for line in _of_kind(errors, native, has_header)]
    if rest := sum(map(len, list(kinds.values())[_KINDS:])):
        shown.append(f"{file}: {rest} more errors of other kinds")
    return "\n".join(shown)


def _of_kind(errors: list[Diagnostic], native: Path, has_header: Callable[[str], bool]) -> list[str]:
    """Show the first of several similar ``errors``, and list the lines of the others."""
    first = errors[0]
    file, line, column = first.user or (first.file, first.line, first.column)
    place = ":".join([file, *(str(number) for number in (line, column) if number)])
    message = first.message if len(first.message) <= _WIDTH else f"{first.message[:_WIDTH]} ..."
    lines = [f"{place}: error: {message}"]
    source = first.excerpt
    if (file, line) != (first.file, first.line):
        if read := _source_line(Path(file), line) if file.startswith(f"{native}/") else "":
            lines.append(f"  {line:>5} | {read}")
        lines.append(f"  which leads to {_short(first.file)}:{first.line}:")
        source = source[:1]
    lines += source
    text = " ".join([*first.excerpt[:1], _source_line(Path(file), line)])
    if hint := hint_for(first.message, text, has_header):
        lines.append(f"  hint: {hint}")
    if others := sorted({(each.user or (each.file, each.line))[1] for each in errors[1:]} - {line, 0}):
        lines.append(f"  the same kind of error in line{'s' * (len(others) > 1)} {_few(others)}")
    return lines


def _source_line(path: Path, number: int) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _short(file: str) -> str:
    """Return the path of a header as in an ``#include``."""
    return re.sub(r"^.*/include/(?=(?:ATen|c10|torch)/)", "", file)


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
