"""A native folder: it has the layout of aten/src/ATen/native in a PyTorch checkout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import UsageError
from .entries import read_entries

FUNCTIONS = Path("native_functions.yaml")
DERIVATIVES = Path("derivatives.yaml")
PYTHON = Path("python")
DOCS = Path("docs")
SAMPLES = Path("samples.py")
AUTOCAST = Path("autocast.yaml")

YAML = (FUNCTIONS, DERIVATIVES, AUTOCAST)
_SOURCE_SUFFIXES = (".cpp",)
_HEADER_SUFFIXES = (".h", ".hpp", ".inl", ".inc")
CUDA_SUFFIXES = (".cu", ".cuh")
PYTHON_SUFFIXES = (".py", ".pyi")
DOCS_SUFFIX = ".rst"


@dataclass(frozen=True)
class NativeFolder:
    """A native folder and its relevant files, as sorted relative paths.

    Args:
        path: the folder.
        yaml: its YAML files.
        sources: C++ files that are compiled once.
        vectorized: files below ``cpu/``, compiled once for each CPU capability.
        headers: headers that are installed with the wheel, below ``ATen/native``.
        cuda: everything below ``cuda/``, and CUDA sources elsewhere.
        python: Python files below ``python/``, which mirrors the ``torch`` package.
        docs: docstrings below ``docs/``, each named after its operator.
        samples: ``samples.py``, the sample inputs of the tests, if it exists.
        unread: files that no build reads; ``make check`` lists them.
    """

    path: Path
    yaml: tuple[Path, ...]
    sources: tuple[Path, ...]
    vectorized: tuple[Path, ...]
    headers: tuple[Path, ...]
    cuda: tuple[Path, ...]
    python: tuple[Path, ...]
    docs: tuple[Path, ...]
    samples: Path | None
    unread: tuple[Path, ...]

    @property
    def cplusplus(self) -> list[Path]:
        """The files that compilers read."""
        return sorted({*self.sources, *self.vectorized, *self.headers, *self.cuda})

    @property
    def files(self) -> list[Path]:
        """The files that a build reads."""
        samples = [self.samples] if self.samples else []
        return sorted({*self.yaml, *self.cplusplus, *self.python, *self.docs, *samples})


def load_native(path: Path) -> NativeFolder:
    """Read the folder ``path``.

    Raises:
        UsageError: the folder does not exist, or it has none of the files that begin one.
    """
    if not path.is_dir():
        what = "this is a file" if path.exists() else "no such folder"
        raise UsageError(f"{path}: {what}", todo=f"set NATIVE to a folder that contains {FUNCTIONS}")
    # What only replaces parts of PyTorch may be one file.
    if not any((path / name).exists() for name in (FUNCTIONS, DERIVATIVES, "cpu")):
        raise UsageError(
            f"{path}: it contains no {FUNCTIONS}",
            cause="NATIVE must be a folder with the layout of aten/src/ATen/native",
            todo=f"write {path / FUNCTIONS}; README.md shows one",
        )
    everything = [file.relative_to(path) for file in sorted(path.rglob("*")) if _belongs(path, file)]
    cuda = tuple(file for file in everything if file.suffix in CUDA_SUFFIXES or file.parts[0] == "cuda")
    python = tuple(file for file in everything if file.parts[0] == PYTHON.name and file.suffix in PYTHON_SUFFIXES)
    docs = tuple(file for file in everything if file.parent == DOCS and file.suffix == DOCS_SUFFIX)
    files = [file for file in everything if file not in cuda]
    vectorized = tuple(file for file in files if file.suffix in _SOURCE_SUFFIXES and _is_vectorized(file))
    found = NativeFolder(
        path=path,
        yaml=tuple(file for file in YAML if file in files),
        sources=tuple(file for file in files if file.suffix in _SOURCE_SUFFIXES and file not in vectorized),
        vectorized=vectorized,
        headers=tuple(file for file in files if file.suffix in _HEADER_SUFFIXES),
        cuda=cuda,
        python=python,
        docs=docs,
        samples=SAMPLES if SAMPLES in files else None,
        unread=(),
    )
    return replace(found, unread=tuple(file for file in everything if file not in found.files))


def _belongs(folder: Path, file: Path) -> bool:
    """Return whether this is a source file, not a test or a file of an editor or version control system."""
    parts = file.relative_to(folder).parts
    of_a_tool = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return parts[0] != "tests" and not of_a_tool and file.is_file()


def _is_vectorized(file: Path) -> bool:
    # PyTorch's cmake/Codegen.cmake: native/cpu/*.cpp and native/quantized/cpu/kernels/*.cpp.
    return file.parent in (Path("cpu"), Path("quantized/cpu/kernels"))


def kernels_for_cuda(native: NativeFolder) -> list[str]:
    """List what the folder has for CUDA, for messages: the number of kernels in its entries, and the files."""
    # torchgen writes the kernels of inner loops, for CUDA too.
    named = sum(
        "ufunc_inner_loop" in entry.fields or any(key.endswith("CUDA") for key in entry.kernels)
        for entry in read_entries(native.path / FUNCTIONS)
    )
    return [*([f"{named} CUDA kernels"] if named else []), *map(str, native.cuda)]
