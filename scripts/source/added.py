"""The merged YAML and torch's Python files, with what the tree's own torchgen makes of a native folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.torchgen import run_with_torchgen
from ..common.errors import OperatorError
from ..common.files import write_if_changed
from ..compile import blame
from ..compose.overlay import Overlay
from ..compose.python_files import additions, behind_upstream
from ..inputs.merge import PACKAGED, MergedFile, merge
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolder
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


def generate_added(native: NativeFolder, merged: Sequence[MergedFile], overlay: Overlay) -> Path:
    """Write the Python file that names the added operators, and what goes behind torch's own files beside it.

    Args:
        native: the native folder.
        merged: its YAML in the overlay.
        overlay: with the tree's torchgen as its base.

    Returns:
        the folder that both are in.

    Raises:
        OperatorError: with torchgen's message, naming the native folder's file and line.
    """
    folders: list[str | Path] = ["--base", overlay.base, "--overlay", overlay.folder, "--native", native.path]
    # Run elsewhere, so that Python imports no torchgen of the current folder.
    arguments = [*folders, "--only-python", overlay.folder]
    done = run_with_torchgen(overlay.base, "scripts.generate", *arguments, cwd=overlay.folder)
    if done.returncode != 0 or not (overlay.folder / ADDED).is_file():
        raise OperatorError(blame.of_torchgen(done.stdout, merged, overlay.folder).strip())
    return overlay.folder


def python_files(native: NativeFolder, generated: Path, stack: Stack, scratch: Path) -> dict[str, Path]:
    """The Python files of the tree that gain something, written below ``scratch``, by their names in the tree.

    Args:
        native: the native folder.
        generated: what ``generate_added`` returned.
        stack: whose tip holds upstream's files.
        scratch: a folder for what is made on the way.
    """
    written = {ADDED: generated / ADDED}
    for in_wheel, addition in additions(native, generated).items():
        name = in_wheel.replace("torchgen/packaged/autograd/", "tools/autograd/")
        # The build makes some stubs from a file beside them: torch/nn/functional.pyi of functional.pyi.in.
        there = stack.holds([name, f"{name}.in"])
        target = scratch / "python" / name
        if there:
            stack.lay_out({}, {there[0]: target})
        text = behind_upstream(target.read_text(encoding="utf-8") if there else None, addition)
        write_if_changed(target, text)
        written[there[0] if there else name] = target
    return written
