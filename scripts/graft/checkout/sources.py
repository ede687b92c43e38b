"""C++ of a checkout: which files can be compiled for a wheel, and where they lie in a native folder."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ..inputs.native import CUDA_SUFFIXES, FOLDERS

ATEN = "aten/src/ATen"
NATIVE = f"{ATEN}/native"
FUNCTORCH = f"{ATEN}/functorch"

# Headers outside of native/ that can replace the wheel's: those that batching rules include, and those of vectors.
_HEADERS = re.compile(
    rf"{FUNCTORCH}/(?:BatchRulesHelper|PlumbingHelper|BatchingMetaprogramming)\.h"
    rf"|{ATEN}/cpu/vec/.*\.h|torch/headeronly/cpu/vec/.*\.h"
)
_SUFFIXES = (".h", ".cuh", ".hpp")

# Folders that PyTorch's build compiles with a library that is linked into the wheel's own libraries.
_OF_LIBRARIES = {"mkl": "oneMKL", "mkldnn": "oneDNN", "xnnpack": "XNNPACK"}
_FLAGS = re.compile(r"set_source_files_properties\s*\(([^)]*)\)", re.I)
# What CMake's files have before a path in the tree: variables, and ``..``.
_IN_TREE = re.compile(r".*(?:\}|\.\.)/")
_CMAKE = (f"{ATEN}/CMakeLists.txt", "caffe2/CMakeLists.txt", "cmake/Codegen.cmake")


def is_source(name: str) -> bool:
    """Return whether a path of the checkout is a source of kernels or batching rules."""
    if name.startswith(f"{FUNCTORCH}/BatchRules"):
        return name.endswith(".cpp")
    return name.startswith(f"{NATIVE}/") and name.endswith((".cpp", ".cu"))


def is_header(name: str) -> bool:
    """Return whether a path of the checkout is a header that can be added to the wheel's, or replace one of them."""
    return bool(_HEADERS.fullmatch(name)) or (name.startswith(f"{NATIVE}/") and name.endswith(_SUFFIXES))


def in_wheel(header: str) -> str:
    """Return the path of a checkout's header below site-packages."""
    return f"torch/include/{header.removeprefix('aten/src/')}"


def place_of(source: str) -> str:
    """Return the path of a source in a native folder. Batching rules lie beside kernels there."""
    folder = FUNCTORCH if source.startswith(f"{FUNCTORCH}/") else NATIVE
    return source.removeprefix(f"{folder}/")


def why_left(name: str, tree: Path, *, has_cuda: bool) -> str:
    """Return why a source or header of kernels cannot be compiled for the wheel; empty if it can."""
    if not name.startswith(f"{NATIVE}/"):
        return ""
    place = Path(place_of(name))
    folder = place.parts[0] if len(place.parts) > 1 else ""
    if folder and folder not in FOLDERS:
        return "a folder that builds for CPU and CUDA do not compile"
    if folder in _OF_LIBRARIES:
        return f"PyTorch's build compiles it with {_OF_LIBRARIES[folder]}, which is inside the wheel's libraries"
    is_cuda = place.suffix in CUDA_SUFFIXES or folder in ("cuda", "cudnn") or "cuda" in place.parts[:-1]
    if is_cuda and not has_cuda:
        return "the torch that is built on has no CUDA"
    if place.suffix not in _SUFFIXES and any(f"/{name}".endswith(f"/{each}") for each in _with_own_flags(tree)):
        return "PyTorch's build compiles it with flags of its own"
    return ""


def _with_own_flags(tree: Path) -> set[str]:
    """Return the ends of the paths of sources for which PyTorch's build sets flags other than those for warnings."""
    files = [tree / name for name in _CMAKE if (tree / name).is_file()]
    return _flagged_in(tuple((file, file.stat().st_mtime_ns) for file in files))


@cache
def _flagged_in(files: tuple[tuple[Path, int], ...]) -> set[str]:
    """Read these ends from CMake's files, each with its time. Cached, since it is called for hundreds of sources."""
    texts = [file.read_text(encoding="utf-8", errors="replace") for file, _ in files]
    found: set[str] = set()
    for use in (use for text in texts for use in _FLAGS.findall(re.sub(r"#[^\n]*", "", text))):
        named, _, values = use.partition("COMPILE_")
        if any(not flag.startswith("-W") for flag in re.split(r"[\s;]+", values.replace('"', " "))[1:] if flag):
            found |= {_IN_TREE.sub("", file) for file in re.findall(r"[\w./${}]+\.(?:cpp|cu)\b", named)}
    return found
