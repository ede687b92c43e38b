"""What makes a folder a native folder. Uses only the standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

FUNCTIONS, DERIVATIVES, PYTHON, DOCS = "native_functions.yaml", "derivatives.yaml", "python", "docs"

# A folder that was written from a checkout of PyTorch has a note of this name, and a folder with the files that take
# the place of torch's own, by their paths below site-packages.
CHECKOUT, OVERLAY = "checkout.json", "overlay"

# Functions that formulas call, as PyTorch has them in torch/csrc/autograd.
HELPERS = "FunctionsManual.cpp"

# Batching rules, autocast policies and kernels of stubs need no entry.
_REGISTERS = re.compile(rb"\bTORCH_LIBRARY_IMPL\(\s*aten\s*,|^[ \t]*REGISTER_\w*DISPATCH\(", re.M)

# The folders of sources, where PyTorch's own build compiles them (aten/src/ATen/CMakeLists.txt).
OF_SOURCES = (
    *("ao_sparse", "cpu", "cuda", "cudnn", "mkl", "mkldnn", "nested", "quantized", "sparse", "transformers", "utils"),
    "xnnpack",
)


def is_native(folder: Path) -> bool:
    """Return whether ``folder`` has what a build can begin with: entries, vectorized kernels, functions for formulas,
    Python files for torch, or a source that registers something for operators of PyTorch; or was written from a
    checkout.
    """
    return (
        _has_operators(folder)
        or (folder / CHECKOUT).is_file()
        or (folder / HELPERS).is_file()
        or any(path.suffix in (".py", ".pyi") for path in (folder / PYTHON).rglob("*.py*"))
        or any(_REGISTERS.search(path.read_bytes()) for path in _sources(folder) if path.is_file())
    )


def _sources(folder: Path) -> Iterator[Path]:
    return chain(folder.glob("*.cpp"), *((folder / name).rglob("*.cpp") for name in OF_SOURCES))


def not_native(folders: Sequence[Path]) -> list[Path]:
    """Return those of ``folders`` that are no native folders. Since they are built together, one may have docstrings
    alone, of operators that another has.
    """
    others = [folder for folder in folders if not is_native(folder)]
    return others if len(others) == len(folders) else [folder for folder in others if not (folder / DOCS).is_dir()]


def is_one_below(folder: Path, *, is_part: bool) -> bool:
    """Return whether ``folder``, which is below a native folder, is a native folder of its own, and no part of that.

    Python files or a source alone do not make it one. ``is_part`` says that it is below a folder that belongs to the
    native folder, such as ``quantized``: there, neither do kernels in ``cpu``.
    """
    is_package = (folder / "__init__.py").exists()
    return _has_entries(folder) if is_part or is_package else _has_operators(folder)


def _has_entries(folder: Path) -> bool:
    return any((folder / name).exists() for name in (FUNCTIONS, DERIVATIVES))


def _has_operators(folder: Path) -> bool:
    return _has_entries(folder) or any((folder / "cpu").glob("*.cpp"))


def shown(folder: Path) -> str:
    """Return the name of a native folder in messages: that of the checkout that it was written from, if it was."""
    try:
        return str(json.loads((folder / CHECKOUT).read_text(encoding="utf-8"))["tree"])
    except (OSError, ValueError):
        return str(folder)
