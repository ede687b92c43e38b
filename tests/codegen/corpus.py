"""The native folders with one mistake each in ``broken/``."""

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

WRITING = """\
A case has a key for each file of a native folder; `mistake` says what is wrong with it. `expect` is the beginning of
check's only finding. `generated` is the same for a finding that needs the text that torchgen generates. `compiler` is
the beginning of the compiler's error where check finds nothing.

`fixed` has the texts to replace, each with its replacement, for a reader who follows the finding's remedy. The folder
then has no mistake, which `test_remedies.py` checks. Leave `fixed` out if the remedy quotes everything to write, as
"did you mean `Tensor`?" and "add `autogen: f.out`" do: the test then writes that."""

BROKEN: list[dict[str, Any]] = [
    case for file in sorted(FOLDER.glob("*.yaml")) for case in yaml.safe_load(file.read_text())
]


def files_of(case: dict[str, Any]) -> dict[str, str]:
    """Return the text of each file of a case."""
    return {name: case[name] for name in case if name not in ("mistake", "expect", "generated", "compiler", "fixed")}


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
