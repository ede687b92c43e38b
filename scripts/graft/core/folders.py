"""Recognize native folders. Uses only the standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

FUNCTIONS, DERIVATIVES, PYTHON, DOCS = "native_functions.yaml", "derivatives.yaml", "python", "docs"

# In a native folder that a program wrote: the file with its origin, and the folder of files that replace torch's own,
# by their paths below site-packages.
PLACES, OVERLAY = "places.json", "overlay"
# In a folder that adopt wrote: what it wrote, and facts about the operators.
ADOPTED = "adopted.json"

# The source of functions that derivative formulas call. PyTorch's own is in torch/csrc/autograd.
HELPERS = "FunctionsManual.cpp"

# Registrations that need no entry: batching rules, autocast policies and kernels of stubs.
_REGISTERS = re.compile(rb"\bTORCH_LIBRARY_IMPL\(\s*aten\s*,|^[ \t]*REGISTER_\w*DISPATCH\(", re.M)

# The folders in which PyTorch's own build compiles sources (aten/src/ATen/CMakeLists.txt).
OF_SOURCES = (
    *("ao_sparse", "cpu", "cuda", "cudnn", "mkl", "mkldnn", "nested", "quantized", "sparse", "transformers", "utils"),
    "xnnpack",
)


def is_native(folder: Path) -> bool:
    """Return whether ``folder`` is a native folder: it has entries, vectorized kernels, functions for formulas, Python
    files for torch, or a source that registers something for operators of PyTorch; or a program wrote it.
    """
    return (
        _has_operators(folder)
        or (folder / PLACES).is_file()
        or (folder / HELPERS).is_file()
        or any(path.suffix in (".py", ".pyi") for path in (folder / PYTHON).rglob("*.py*"))
        or any(_REGISTERS.search(path.read_bytes()) for path in _sources(folder) if path.is_file())
    )


def _sources(folder: Path) -> Iterator[Path]:
    return chain(folder.glob("*.cpp"), *((folder / name).rglob("*.cpp") for name in OF_SOURCES))


def not_native(folders: Sequence[Path]) -> list[Path]:
    """Return the members of ``folders`` that are not native folders. Beside a native folder, a folder may have
    docstrings alone: they are built together.
    """
    others = [folder for folder in folders if not is_native(folder)]
    return others if len(others) == len(folders) else [folder for folder in others if not (folder / DOCS).is_dir()]


def is_one_below(folder: Path, *, is_part: bool) -> bool:
    """Return whether ``folder``, which is below a native folder, is a separate native folder and not a part of it.

    Python files or a source alone do not make it one. With ``is_part``, it is in a subfolder that belongs to the native
    folder, such as ``quantized``; there, kernels in ``cpu`` do not make it one either.
    """
    is_package = (folder / "__init__.py").exists()
    return _has_entries(folder) if is_part or is_package else _has_operators(folder)


def _has_entries(folder: Path) -> bool:
    return any((folder / name).exists() for name in (FUNCTIONS, DERIVATIVES))


def _has_operators(folder: Path) -> bool:
    return _has_entries(folder) or any((folder / "cpu").glob("*.cpp"))


@dataclass(frozen=True)
class Origin:
    """The files that a program wrote a native folder from. Each has the lines of the folder's file at the same numbers,
    so messages name it instead.

    Args:
        root: the folder of these files.
        option: the option of commands that takes ``root``. A build takes only one such folder.
        places: their paths below ``root``, by name in the native folder, also of all files in ``overlay/``.
    """

    root: str
    option: str
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the file ``PLACES``."""
        return json.dumps(asdict(self), indent=1)


def origin_of(folder: Path) -> Origin | None:
    """Return what a native folder was written from; None for one that users write."""
    try:
        return Origin(**json.loads((folder / PLACES).read_text(encoding="utf-8")))
    except OSError:
        return None


def shown(folder: Path) -> str:
    """Return the path of a native folder for messages: that of the files that it was written from, if it was."""
    origin = origin_of(folder)
    return origin.root if origin else str(folder)
