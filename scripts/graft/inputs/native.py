"""A native folder: it has the layout of aten/src/ATen/native in a PyTorch checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..core import folders
from ..core.errors import UsageError
from .entries import read_entries
from .includes import included

FUNCTIONS = Path(folders.FUNCTIONS)
DERIVATIVES = Path(folders.DERIVATIVES)
PYTHON = Path(folders.PYTHON)
DOCS = Path(folders.DOCS)
SAMPLES = Path("samples.py")
AUTOCAST = Path("autocast.yaml")

YAML = (FUNCTIONS, DERIVATIVES, AUTOCAST)
_SOURCE_SUFFIXES = (".cpp",)
_HEADER_SUFFIXES = (".h", ".hpp", ".inl", ".inc")
CUDA_SUFFIXES = (".cu", ".cuh")
_CPLUSPLUS = (*_SOURCE_SUFFIXES, *_HEADER_SUFFIXES, *CUDA_SUFFIXES)
PYTHON_SUFFIXES = (".py", ".pyi")
DOCS_SUFFIX = ".rst"

# The folders that builds read; any other is left alone. Sources are where PyTorch's own build compiles them
# (aten/src/ATen/CMakeLists.txt).
FOLDERS = (
    *("ao_sparse", "cpu", "cuda", "cudnn", "mkl", "mkldnn", "nested", "quantized", "sparse", "transformers", "utils"),
    *("ufunc", "xnnpack", DOCS.name, PYTHON.name),
)

# Files of editors, version control and package managers.
_OF_TOOLS = re.compile(r"\..*|#.*#|.*~|.*\.(orig|rej|bak|swp)|__pycache__|.*\.(egg|dist)-info", re.S)
# What ninja, compilers and wheels can all handle.
_NAME = re.compile(r"[\w.+-]{1,120}")

# The macros of ATen/native/DispatchStub.h, and the namespace of functions that are compiled for each CPU capability.
_REGISTERS = re.compile(r"\b(?:\w+_)?REGISTER_(?:\w+_)?DISPATCH\b")
_OF_CAPABILITY = re.compile(r"\bnamespace\s+CPU_CAPABILITY\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


@dataclass(frozen=True)
class NativeFolder:
    """A native folder and its relevant files, as sorted relative paths.

    Args:
        path: the folder.
        yaml: its YAML files.
        sources: C++ files that are compiled once.
        vectorized: files in ``cpu/`` with kernels for dispatch stubs, compiled once for each CPU capability.
        headers: headers that are installed with the wheel, below ``ATen/native``; those in other folders, if included.
        cuda: everything below ``cuda/``, and CUDA sources elsewhere.
        python: Python files below ``python/``, which mirrors the ``torch`` package.
        docs: docstrings below ``docs/``, each named after its operator.
        samples: ``samples.py``, the sample inputs of the tests, if it exists.
        unread: other files beside these. A build reads none, but ``make check`` looks for misspelt names.
        others: folders below it that are native folders of their own, and no part of this one.
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
    others: tuple[Path, ...]

    @cached_property
    def cplusplus(self) -> list[Path]:
        """The files that compilers read."""
        return sorted({*self.sources, *self.vectorized, *self.headers, *self.cuda})

    @cached_property
    def files(self) -> list[Path]:
        """The files that a build reads."""
        samples = [self.samples] if self.samples else []
        return sorted({*self.yaml, *self.cplusplus, *self.python, *self.docs, *samples})


def load_native(path: Path) -> NativeFolder:
    """Read the folder ``path``.

    Raises:
        UsageError: the folder does not exist; or lists the files that cannot be read.
    """
    if not path.is_dir():
        what = "this is a file" if path.exists() else "no such folder"
        raise UsageError(f"{path}: {what}", todo=f"set NATIVE to a folder that contains {FUNCTIONS}")
    read: list[Path] = []
    unread: list[Path] = []
    faults: list[tuple[Path, str]] = []
    others: list[Path] = []
    for file in sorted(_below(path, path, [path.resolve()], faults, others)):
        if not _is_read(file):
            unread.append(file)
        elif fault := _fault(path, file):
            faults.append((path / file, fault))
        else:
            read.append(file)
    if faults:
        lines = [f"{_printable(file)}: {fault}" for file, fault in faults]
        raise UsageError("\n".join(lines), todo="correct or move what is named")
    code = [file for file in read if file.parts[0] not in (PYTHON.name, DOCS.name)]
    cuda = [file for file in code if file.suffix in CUDA_SUFFIXES or file.parts[0] == "cuda"]
    others_read = included(path, (file for file in code if file.suffix in _CPLUSPLUS))
    headers = {file for file in others_read - {*code} if not _fault(path, file)}
    files = sorted({*code} - {*cuda})
    sources = [file for file in files if file.suffix in _SOURCE_SUFFIXES]
    vectorized = tuple(file for file in sources if is_for_capabilities(file) and _is_vectorized(path, file))
    return NativeFolder(
        path=path,
        yaml=tuple(file for file in YAML if file in read),
        sources=tuple(file for file in sources if file not in vectorized),
        vectorized=vectorized,
        headers=tuple(sorted({*(file for file in files if file.suffix in _HEADER_SUFFIXES), *headers})),
        cuda=tuple(cuda),
        python=tuple(file for file in read if file.parts[0] == PYTHON.name),
        docs=tuple(file for file in read if file.parts[0] == DOCS.name),
        samples=SAMPLES if SAMPLES in read else None,
        unread=tuple(file for file in unread if file not in headers and not _fault(path, file)),
        others=tuple(others),
    )


def load_natives(paths: Sequence[Path]) -> list[NativeFolder]:
    """Read the native folders ``paths``, which are built together.

    Raises:
        UsageError: see ``load_native``; or a folder has none of the files that make a native folder.
    """
    natives = [load_native(path) for path in paths]
    require_native(paths)
    return natives


def require_native(paths: Sequence[Path], where: str = "") -> None:
    """Check that ``paths``, which are named in ``where`` or in NATIVE, are native folders.

    Raises:
        UsageError: names the first that is not.
    """
    for path in folders.not_native(paths):
        raise UsageError(
            f"{where}{path}: it contains no {FUNCTIONS}",
            cause="a native folder has the layout of aten/src/ATen/native",
            todo=f"write {path / FUNCTIONS}; README.md shows one",
        )


def _below(
    top: Path, folder: Path, parents: list[Path], faults: list[tuple[Path, str]], others: list[Path]
) -> Iterator[Path]:
    """Yield what a build could read below ``folder`` of the native folder ``top``, by its path there. Follow links.

    ``parents`` are the folders above it, without links. Links that cannot be followed are added to ``faults``, native
    folders of their own to ``others``.
    """
    for path in folder.iterdir():
        file = path.relative_to(top)
        is_part = file.parts[0] in FOLDERS
        may_be_other = not path.is_symlink() and (folder != top or not is_part)
        if _OF_TOOLS.fullmatch(path.name):
            continue
        if not path.is_dir() or _is_read(file):
            yield file
        elif may_be_other and folders.is_one_below(path, is_part=is_part):
            others.append(file)
        elif not is_part:
            continue
        elif (real := path.resolve()) in parents:
            faults.append((path, "this link leads to a folder that it is in"))
        elif not real.is_relative_to(parents[0]):
            faults.append((path, f"this link leads out of the native folder, to {real}"))
        else:
            yield from _below(top, path, [*parents, real], faults, others)


def _is_read(file: Path) -> bool:
    """Return whether a build would read a file of this name."""
    if file.parts[0] == PYTHON.name:
        return file.suffix in PYTHON_SUFFIXES
    if file.parts[0] == DOCS.name:
        return file.parent == DOCS and file.suffix == DOCS_SUFFIX
    return file in (*YAML, SAMPLES) or file.suffix in _CPLUSPLUS


def _fault(folder: Path, file: Path) -> str:
    """Return why a build cannot read ``file`` in ``folder``; empty if it can."""
    path = folder / file
    if not all(map(_NAME.fullmatch, file.parts)):
        return "its name needs to be at most 120 letters, digits and . _ + -"
    if not path.is_file():
        return "this link leads nowhere" if path.is_symlink() and not path.exists() else "not a file"
    return ""


def _printable(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")


def is_for_capabilities(file: Path) -> bool:
    """Return whether PyTorch's own build would compile a source for each CPU capability (its cmake/Codegen.cmake)."""
    return file.parent in (Path("cpu"), Path("quantized/cpu/kernels"))


def _is_vectorized(folder: Path, file: Path) -> bool:
    """Return whether a source in ``cpu/`` has kernels for dispatch stubs, or what such kernels call. Others would be
    defined once for each capability.
    """
    text = _without_comments(folder / file)
    if _REGISTERS.search(text) or _OF_CAPABILITY.search(text):
        return True
    return any(_REGISTERS.search(_without_comments(folder / name)) for name in included(folder, [file]))


def _without_comments(path: Path) -> str:
    return _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))


def kernels_for_cuda(native: NativeFolder) -> list[str]:
    """List what the folder has for CUDA, for messages: the number of kernels in its entries, and the files."""
    # torchgen writes the kernels of inner loops, for CUDA too.
    named = sum(
        "ufunc_inner_loop" in entry.fields or any(key.endswith("CUDA") for key in entry.kernels)
        for entry in read_entries(native.path / FUNCTIONS)
    )
    return [*([f"{named} CUDA kernels"] if named else []), *map(str, native.cuda)]
