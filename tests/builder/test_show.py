"""`graft show` without an operator: what was added to a torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from graft import cli, show
from helpers import Capture, write

NOTE: dict[str, Any] = {"delivery": "wheel", "base": "2.13.0+cpu", "hash": "0123456789", "replaced": {}}
OPERATORS = (
    '"""Generated."""\nFUNCTIONS = {}\nOPERATORS = [\n    "aten::f",\n    "aten::f.out",\n    "aten::_g",\n]\nX = []\n'
)


def shown(capsys: Capture, *words: str | Path, code: int = 0) -> str:
    assert cli.main(cli.VERBS, ["show", *map(str, words)]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(("package", "note"), [("torch", "_graft.json"), ("my_ops/torch_2_13_0_cpu", "note.json")])
def test_wheel(package: str, note: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of torch, and a thin one, whose name is that of no torch. It may be given in the place of an operator."""
    wheel = tmp_path / "my_ops-0.1-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{package}/{note}", json.dumps({**NOTE, "replaced": {"gelu": ["CPU", "formula"]}}))
        archive.writestr(f"{package}/_added_operators.py", OPERATORS)
    said = shown(capsys, "--wheel", wheel)
    assert said.splitlines() == [
        str(wheel),
        "delivery   wheel",
        "base       torch 2.13.0+cpu",
        "hash       0123456789",
        "operators  f",
        "replaced   gelu (CPU, formula)",
    ]
    monkeypatch.chdir(tmp_path.parent)
    for path in (wheel, wheel.relative_to(tmp_path.parent)):
        assert shown(capsys, path) == said
    monkeypatch.chdir(tmp_path)
    assert shown(capsys, wheel.name) == said
    assert "next: set WHEEL to" in shown(capsys, "none.whl", code=2)


def test_wheel_without_operators_and_another_file(tmp_path: Path, capsys: Capture) -> None:
    wheel = tmp_path / "torch-2.13.0-cp311-cp311-linux_x86_64.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("torch/version.py", "")
    assert "nothing was added" in shown(capsys, "--wheel", wheel)
    wheel.write_text("no wheel")
    assert "next: set" in shown(capsys, "--wheel", wheel, code=2)


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        ({"__init__.py": "", "_graft.py": "print('what it says')"}, 0, "what it says"),
        ({"__init__.py": ""}, 0, "the official torch; nothing was added to it"),
        ({"__init__.py": "1 / 0"}, 6, "torch cannot be imported\n  why:  Traceback"),
    ],
)
def test_environment(
    files: dict[str, str], code: int, said: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python"
    site = write(tmp_path / "site", {f"torch/{name}": text for name, text in files.items()})
    program = f'#!/bin/sh\nshift\nPYTHONPATH={site} exec {sys.executable} "$@"\n'
    write(tmp_path, {"bin/python": program})
    python.chmod(0o755)
    monkeypatch.setattr(show, "find_site", lambda _: (site, site))
    assert said in shown(capsys, "--python", python, code=code)
