"""The native folders with one mistake each in ``broken/``, and those with none in ``right.yaml``."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.inputs.native import load_natives

FOLDER = Path(__file__).parent / "broken"

BROKEN: list[dict[str, Any]] = [
    case for file in sorted(FOLDER.glob("*.yaml")) for case in yaml.safe_load(file.read_text())
]

RIGHT: list[dict[str, Any]] = yaml.safe_load(FOLDER.with_name("right.yaml").read_text())

# The keys of a case that are no files.
_SAID = ("mistake", "right", "expect", "generated", "compiler", "fixed")


def files_of(case: dict[str, Any]) -> dict[str, str]:
    """Return the text of each file of a case."""
    return {name: case[name] for name in case if name not in _SAID}


def lay_out(files: Mapping[str, str | bytes], folder: Path) -> Path:
    """Write files below ``folder``, which is returned."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def said_of(folder: Path, known: BaseOperators, files: Mapping[str, str | bytes]) -> list[str]:
    """Write a native folder. Return what check finds there."""
    findings = check(load_natives([lay_out(files, folder)]), known)
    return [line.replace(f"{folder}/", "") for line in findings.lines()]


def noted(native: Path, note: Path) -> Path:
    """Write the file in which the generator finds a native folder, as a snapshot does."""
    note.write_bytes(pickle.dumps(load_natives([native])))
    return note
