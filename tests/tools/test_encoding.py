"""Sources are UTF-8, whatever the user's locale says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.common.layout import REPOSITORY

MODULES = sorted((REPOSITORY / "scripts/source").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_text_is_read_and_written_as_utf_8(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    for call in calls:
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in ("read_text", "write_text", "open"):
            said = [keyword.value for keyword in call.keywords if keyword.arg == "encoding"]
            assert [getattr(value, "value", None) for value in said] == ["utf-8"], f"{path}:{call.lineno}: {name}"
