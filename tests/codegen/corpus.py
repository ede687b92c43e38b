"""The native folders with one mistake each in ``broken/``, and those with none in ``right.yaml``."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.codegen import NARROW, NARROW_OF_FORMULAS
from graft.inputs.native import load_natives
from helpers import write

FOLDER = Path(__file__).parent / "broken"

BROKEN: list[dict[str, Any]] = [
    case for file in sorted(FOLDER.glob("*.yaml")) for case in yaml.safe_load(file.read_text())
]

RIGHT: list[dict[str, Any]] = yaml.safe_load(FOLDER.with_name("right.yaml").read_text())

# The keys of a case that are no files.
_SAID = ("mistake", "right", "code", "expect", "generated", "compiler", "fixed")


def files_of(case: dict[str, Any]) -> dict[str, str]:
    """Return the text of each file of a case."""
    return {name: case[name] for name in case if name not in _SAID}


def said_of(folder: Path, known: BaseOperators, files: Mapping[str, str | bytes]) -> list[str]:
    """Write a native folder. Return what check finds there."""
    findings = check(load_natives([write(folder, files)]), known)
    return [line.replace(f"{folder}/", "") for line in findings.lines()]


def headers_of(unit: Path) -> list[Path]:
    """Return the folders with the headers that are generated for a unit."""
    return [unit / name for name in ("own", NARROW_OF_FORMULAS, NARROW)]


def compiled(source: Path, places: Iterable[Path], *options: str | Path) -> str:
    """Return the errors of g++ for a source, with headers in these places."""
    flags = ["-std=c++20", "-fsyntax-only", "-w", "-DAT_PER_OPERATOR_HEADERS", *(f"-I{place}" for place in places)]
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(["g++", *flags, *options, source], stderr=subprocess.PIPE, text=True, check=False, env=env)
    assert bool(done.stderr) == bool(done.returncode)
    return done.stderr


def noted(native: Path, note: Path) -> Path:
    """Write the file in which the generator finds a native folder, as a snapshot does."""
    note.write_bytes(pickle.dumps(load_natives([native])))
    return note
