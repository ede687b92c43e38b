"""What the fork adds to PyTorch's source tree, and where: native files, YAML, torch's Python files."""

from __future__ import annotations

from pathlib import Path

from ..base.base import run_with_torchgen
from ..codegen import DESCRIPTION
from ..codegen.description import Description
from ..compose.appending import appended_texts, behind
from ..core.errors import OperatorError
from ..core.files import files_below, write_if_changed
from ..inputs.merge import PACKAGED, merge_with_base
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolder
from ..inputs.patches import ADDED
from .stack import Stack
from .tree import FUNCTIONS_YAML

NATIVE = "aten/src/ATen/native"
_YAML = {FUNCTIONS: FUNCTIONS_YAML, DERIVATIVES: "tools/autograd/derivatives.yaml"}


def placed(native: NativeFolder) -> dict[str, Path]:
    """Return every C++ and CUDA file of the native folder, by name in the tree."""
    files = sorted({*native.sources, *native.vectorized, *native.headers, *native.cuda})
    return {f"{NATIVE}/{file.as_posix()}": native.path / file for file in files}


def lay_out_torchgen(stack: Stack, base: Path) -> None:
    """Write the tip's torchgen as in a wheel, including what upstream's setup.py copies below torchgen/packaged."""
    packaged = base / "torchgen/packaged"
    folders = {
        "torchgen": base / "torchgen",
        "tools/autograd": packaged / "autograd",
        "aten/src/ATen/templates": packaged / "ATen/templates",
    }
    names = ("native_functions.yaml", "tags.yaml")
    stack.lay_out(folders, {f"{NATIVE}/{name}": packaged / "ATen/native" / name for name in names})


def merge_yaml(native: NativeFolder, base: Path, out: Path) -> dict[str, Path]:
    """Return the tree's YAML with the native folder's entries, written below ``out``, by name in the tree.

    Raises:
        OperatorError: a file of the native folder is not a YAML list of entries.
    """
    merge_with_base([native.path], base, out / "wheel")
    return {target: out / "wheel" / PACKAGED[file] / file for file, target in _YAML.items()}


def generate_part(part: str, native: NativeFolder, base: Path, out: Path) -> None:
    """Run the graft's generator with the tree's torchgen.

    Args:
        part: what to generate: ``python`` or ``cpp``.
        native: the native folder.
        base: the tree's torchgen.
        out: the output folder.

    Raises:
        OperatorError: torchgen's message, with file and line in the native folder.
    """
    arguments: list[str | Path] = ["--base", base, "--native", native.path, "--out", out, "--part", part]
    # Run in another folder, so that Python does not import a torchgen from the current one.
    done = run_with_torchgen(base, "graft.codegen", *arguments, cwd=out)
    if done.returncode != 0:
        raise OperatorError(done.stdout.strip())


def python_files(native: NativeFolder, generated: Path, stack: Stack, scratch: Path) -> dict[str, Path]:
    """Return the extended files of the tree, written below ``scratch``, by name in the tree.

    Args:
        native: the native folder.
        generated: the output folder of ``generate_part("python", ...)``.
        stack: the stack whose tip has upstream's files.
        scratch: a folder for temporary files.
    """
    written = {ADDED: generated / "wheel" / ADDED}
    appended = generated / "appended"
    texts = {name.as_posix(): (appended / name).read_text(encoding="utf-8") for name in files_below(appended)}
    texts |= appended_texts(native, Description.load(generated / DESCRIPTION))
    for in_wheel, text in texts.items():
        name = in_wheel.replace("torchgen/packaged/autograd/", "tools/autograd/")
        # The build generates some stubs from templates: torch/nn/functional.pyi from functional.pyi.in.
        there = stack.holds([name, f"{name}.in"])
        target = scratch / "python" / name
        if there:
            stack.lay_out({}, {there[0]: target})
        upstream = target.read_text(encoding="utf-8") if there else None
        write_if_changed(target, behind(upstream, text))
        written[there[0] if there else name] = target
    return written
