"""What a thin wheel runs at the end of ``import torch``, damaged in all ways: torch must be imported nevertheless."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from graft.core.layout import PACKAGE
from helpers import write

SHIPPED = PACKAGE / "deliver/shipped"
TORCH = """
from . import version
__version__ = "1.0"
try:
    import ops
    ops.autoload()
except Exception as error:
    raise RuntimeError("torch cannot be imported") from error
"""
PROGRAM = """
import sys, warnings
import torch
print("torch", torch.__version__)
print(hasattr(torch, "cut"))
try:
    import ops
except ImportError as error:
    print(error)
"""
BUILD = {"folder": "a", "requires": "1.0", "commit": "c", "libraries": {}, "names": ["cut"]}
NOTE = {"name": "ops", "operators": [], "extension": "_C.so", "owners": [], "behind": {}, "new": {}, "stars": {}}


def imported(folder: Path, path: str = "") -> tuple[str, str]:
    """Import torch, then the package. Return what was printed, and what torch said."""
    paths = f"{folder}:{path or folder}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {"torch/__init__.py": TORCH, "torch/version.py": "git_version = 'c'\n"})
    files = {"__init__": "package.py", "_load": "load.py", "_publish": "publish.py"}
    write(tmp_path, {f"ops/{name}.py": (SHIPPED / file).read_text() for name, file in files.items()})
    return write(tmp_path, {"ops/builds.json": json.dumps([BUILD]), "ops/a/note.json": json.dumps(NOTE)})


REFUSED = "ops: its operators were not added to torch: "


@pytest.mark.parametrize("is_archive", [False, True])
def test_package_without_its_library_or_in_an_archive_stops_no_import(folder: Path, is_archive: bool) -> None:
    if is_archive:
        with ZipFile(folder / "ops.zip", "w") as archive:
            for path in sorted((folder / "ops").rglob("*.*")):
                archive.write(path, path.relative_to(folder))
        shutil.rmtree(folder / "ops")
    out, said = imported(folder, str(folder / "ops.zip") if is_archive else "")
    assert out.startswith(f"torch 1.0\nFalse\n{REFUSED}") and said.startswith(REFUSED)


@pytest.mark.parametrize("name", ["builds.json", "a/note.json"])
@pytest.mark.parametrize("text", [None, "", "[{", "[]", "{}", "null", "[null]", '[{"names": null}]', "\0", "\ufeff[]"])
def test_damaged_notes_stop_no_import(folder: Path, name: str, text: str | None) -> None:
    path = folder / "ops" / name
    path.unlink() if text is None else path.write_text(text)
    out, said = imported(folder)
    assert out.startswith(f"torch 1.0\nFalse\n{REFUSED}")
    assert said.startswith(REFUSED) and said.count("\n") == 1


@pytest.mark.parametrize("delivery", ["develop", "source"])
@pytest.mark.parametrize("others", [{}, {"first": {"name": "first", "operators": ["aten::other"]}}])
def test_operator_of_a_grafted_torch_is_refused(folder: Path, others: dict[str, Any], delivery: str) -> None:
    """To register it twice would end Python. Also if another thin wheel was loaded before."""
    added = ["aten::cut", *(name for note in others.values() for name in note["operators"])]
    texts = {"_added_operators.py": f"OPERATORS = {added}\n"}
    if delivery == "develop":  # a build of PyTorch's sources has no note
        texts["_graft.json"] = json.dumps({"delivery": delivery, "base": "1.0", "hash": "", "folders": {}})
    texts |= {"_graft.py": (PACKAGE / "compose/appended/_graft.py").read_text()}
    texts |= {"__init__.py": f"_thin_wheels = {others}\n{TORCH}"}
    write(folder, {f"torch/{name}": text for name, text in texts.items()})
    write(folder, {"ops/a/note.json": json.dumps({**NOTE, "operators": ["aten::cut"]})})
    out, said = imported(folder)
    reason = f"{REFUSED}aten::cut is already in torch 1.0; uninstall ops\n"
    assert (out, said) == (f"torch 1.0\nFalse\n{reason}", reason)


def test_description_of_a_grafted_torch_can_be_run_beside_it(folder: Path) -> None:
    """Python warns if what it is asked to run was imported before."""
    described = "def notes():\n    return []\nprint('described')\n"
    write(folder, {"torch/_graft.py": described, "torch/_added_operators.py": "OPERATORS = []\n"})
    command = [sys.executable, "-W", "error", "-m", "torch._graft"]
    env = {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "described"), done.stderr
    assert "RuntimeWarning" not in done.stderr
