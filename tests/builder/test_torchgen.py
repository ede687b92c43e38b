"""The process that imports a tree's torchgen together with the builder's modules."""

from __future__ import annotations

from pathlib import Path

from graft.base.base import run_with_torchgen
from graft.core.layout import REPOSITORY
from helpers import Patch

SHOW = """
import os, sys
import graft, torchgen
print(graft.__file__, torchgen.__file__, os.getcwd(), sys.flags.utf8_mode, "\u00e9", *sys.argv[1:], sep="\\n")
sys.exit(3)
"""


def test_module_imports_the_tree_s_torchgen(tmp_path: Path, monkeypatch: Patch) -> None:
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    for folder in (tree, elsewhere):
        (folder / "torchgen").mkdir(parents=True)
        (folder / "torchgen/__init__.py").touch()
    (tree / "torchgen/show.py").write_text(SHOW, encoding="utf-8")
    # The user's environment variables must not matter.
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    monkeypatch.setenv("PYTHONUTF8", "0")
    # Nor where the command is typed, such as a checkout of PyTorch.
    monkeypatch.chdir(elsewhere)
    done = run_with_torchgen(tree, "torchgen.show", "--base", tree)
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        str(REPOSITORY / "scripts/graft/__init__.py"),
        str(tree / "torchgen/__init__.py"),
        str(tree),
        "1",
        "\u00e9",
        "--base",
        str(tree),
    ]
