"""Text files are UTF-8, whatever the user's locale: each call that reads or writes text specifies it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY

TEXT = {"read_text", "write_text", "open", "run", "Popen"}
SCRIPTS = REPOSITORY / "scripts"
FILES = sorted(path for path in SCRIPTS.rglob("*.py") if "appended" not in path.parts)


def reads_or_writes_text(call: ast.Call) -> bool:
    """Return whether a call decodes or encodes text."""
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("ZipFile", "os"):
        return False  # members are bytes, and descriptors are of bytes
    if name not in TEXT or (name in ("read_text", "write_text") and not is_method):
        return False
    if name in ("run", "Popen"):
        return any(keyword.arg in ("text", "universal_newlines") for keyword in call.keywords)
    modes = [word.value for word in [*call.args, *(k.value for k in call.keywords)] if isinstance(word, ast.Constant)]
    return name != "open" or not any("b" in mode for mode in modes if isinstance(mode, str) and len(mode) < 4)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_text_says_its_encoding(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    without = [
        f"{path}:{call.lineno}"
        for call in calls
        if reads_or_writes_text(call) and not any(keyword.arg == "encoding" for keyword in call.keywords)
    ]
    assert not without
