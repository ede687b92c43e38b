"""Findings for other programs: annotations on the lines of a pull request for GitHub, and JSON for editors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import BuildError, Finding, GraftError
from ..core.wording import as_typed
from ..options import GITHUB, JSON, TEXT
from . import Findings


def _lines(findings: Iterable[Finding]) -> str:
    """Return annotations for GitHub, which shows the first ten errors and the first ten warnings of a step."""
    return "\n".join(map(_annotation, findings))


def _annotation(finding: Finding) -> str:
    place = {"file": _from_root(finding.file), "line": finding.line, "col": finding.column} if finding.line else {}
    values = {**place, "title": finding.code or "graft"}
    given = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in values.items() if value)
    kind = "warning" if finding.is_warning else "error"
    return f"::{kind} {given}::{_escaped('; '.join(filter(None, (finding.what, finding.todo))))}"


def _escaped(text: str, more: str = "") -> str:
    """Escape a message of a workflow command, or the value of a property, in which ``more`` characters end it."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _from_root(file: Path) -> Path:
    """Return the path of a file below the repository that contains it; the whole path if none does."""
    root = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    return file.relative_to(root) if root else file


def _json(findings: Iterable[Finding]) -> str:
    """Return a list of objects. Without a place, the file is empty and the line is 0."""
    return json.dumps([_object(each) for each in findings], indent=1)


def _object(finding: Finding) -> dict[str, str | int]:
    return {
        "severity": "warning" if finding.is_warning else "error",
        "code": finding.code,
        "file": str(finding.file) if finding.line else "",
        "line": finding.line,
        "column": finding.column,
        "text": finding.what,
        "remedy": finding.todo,
    }


_FORMATS: dict[str, Callable[[Iterable[Finding]], str]] = {TEXT: lambda _: "", GITHUB: _lines, JSON: _json}


@contextmanager
def reported(wanted: str | None) -> Iterator[set[Finding]]:
    """Print the findings of the body in a format on standard output, besides the text on standard error. The body adds
    warnings to the set; errors are in its exception.

    Args:
        wanted: the format; by default ``GITHUB`` in a workflow of GitHub Actions, else ``TEXT``.
    """
    found: set[Finding] = set()
    try:
        yield found
    except GraftError as error:
        several = error.findings if isinstance(error, BuildError) else ()
        found.update(several or [Finding(Path(), 0, 0, error.what, "; ".join(filter(None, (error.cause, error.todo))))])
        raise
    finally:
        format_ = _FORMATS[wanted or (GITHUB if os.environ.get("GITHUB_ACTIONS") else TEXT)]
        if text := as_typed(format_(Findings(found).ordered)):
            print(text, flush=True)
