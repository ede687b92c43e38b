"""The merged YAML, and the Python file that names the added operators, made by the tree's own torchgen."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import blame
from ..errors import OperatorError
from ..layout import REPOSITORY
from ..merge import PACKAGED, MergedFile, merge
from ..native import DERIVATIVES, FUNCTIONS, NativeFolder
from ..overlay import Overlay
from ..process import run
from .stack import Stack
from .tree import FUNCTIONS_YAML

ADDED = "torch/_added_operators.py"
YAML = {FUNCTIONS: FUNCTIONS_YAML, DERIVATIVES: "tools/autograd/derivatives.yaml"}


def lay_out_torchgen(stack: Stack, scratch: Path) -> Overlay:
    """Lay out the tip's torchgen as a wheel holds it, with what upstream's setup.py copies below torchgen/packaged."""
    base = scratch / "base"
    packaged = base / "torchgen/packaged"
    folders = {
        "torchgen": base / "torchgen",
        "tools/autograd": packaged / "autograd",
        "aten/src/ATen/templates": packaged / "ATen/templates",
    }
    files = {
        f"aten/src/ATen/native/{name}": packaged / "ATen/native" / name
        for name in ("native_functions.yaml", "tags.yaml")
    }
    stack.lay_out(folders, files)
    return Overlay(scratch / "overlay", base)


def merge_yaml(native: NativeFolder, overlay: Overlay) -> tuple[list[MergedFile], dict[str, Path]]:
    """Merge the YAML in ``overlay``; return the merged files, and their places by their names in the tree.

    Raises:
        OperatorError: a file of the native folder is not a YAML list of entries.
    """
    merged = merge(native, overlay)
    return merged, {target: overlay.folder / PACKAGED[file] / file for file, target in YAML.items()}


def generate_added(merged: Sequence[MergedFile], overlay: Overlay) -> Path:
    """Write the Python file that names the added operators, and return where it is.

    Raises:
        OperatorError: with torchgen's message, naming the native folder's file and line.
    """
    target = overlay.folder / ADDED
    paths = os.pathsep.join([str(REPOSITORY), str(overlay.base)])
    folders: list[str | Path] = ["--base", overlay.base, "--overlay", overlay.folder]
    # Run elsewhere, so that Python imports no torchgen of the current folder.
    done = run(
        [sys.executable, "-m", "scripts.codegen", *folders, "--only-added"],
        cwd=overlay.folder,
        env={"PYTHONPATH": paths},
        check=False,
    )
    if done.returncode != 0 or not target.is_file():
        raise OperatorError(blame.of_torchgen(done.stdout, merged, overlay.folder).strip())
    return target
