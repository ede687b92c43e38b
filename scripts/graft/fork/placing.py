"""Where the files of a native folder go in PyTorch's source tree."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from ..core.errors import OperatorError, UsageError
from ..inputs.native import NativeFolder

NATIVE = "aten/src/ATen/native"
CMAKE_FILES = ("aten/src/ATen/CMakeLists.txt", "cmake/Codegen.cmake")


def placed(native: NativeFolder, tree: Path) -> dict[str, Path]:
    """Return every C++ and CUDA file of the native folder, by name in the tree.

    Args:
        native: the native folder, including CUDA sources.
        tree: has the checkout's CMake files, which list the compiled folders.

    Raises:
        OperatorError: a source is in a folder that PyTorch's build does not compile.
    """
    files = sorted({*native.sources, *native.vectorized, *native.headers, *native.cuda})
    patterns = compiled_patterns(tree)
    sources = [file for file in files if file.suffix in (".cpp", ".cu")]
    faults = [
        f"{native.path / file}: PyTorch's build compiles no {file.suffix} file in native/{file.parent.as_posix()}"
        for file in sources
        if not any(matches(file, *pattern) for pattern in patterns)
    ]
    if faults:
        folders = sorted({PurePosixPath(pattern).parent.as_posix() for pattern, _ in patterns})
        raise OperatorError(
            "\n".join(faults),
            cause=f"{' and '.join(CMAKE_FILES)} list the folders that are compiled: {', '.join(folders)}",
            todo="move the file into one of these",
        )
    return {f"{NATIVE}/{file.as_posix()}": native.path / file for file in files}


def compiled_patterns(tree: Path) -> list[tuple[str, bool]]:
    """Return the patterns below ``native/`` that CMake globs, and whether each is recursive.

    Raises:
        UsageError: there are none, so this version of PyTorch is not supported.
    """
    found = []
    for name in CMAKE_FILES:
        text = (tree / name).read_text(encoding="utf-8") if (tree / name).is_file() else ""
        for command, arguments in re.findall(r"^\s*file\s*\(\s*(GLOB(?:_RECURSE)?)\s([^)]*)\)", text, re.M):
            for pattern in re.findall(r'"(?:[^"]*aten/src/ATen/)?(native/[^"]*)"', arguments):
                found.append((pattern, command == "GLOB_RECURSE"))
    if not found:
        raise UsageError(
            f"{' and '.join(CMAKE_FILES)}: these files of the source tree name no folder of native sources",
            todo="set SOURCE to the top folder of a whole checkout of PyTorch",
        )
    return found


def matches(file: Path, pattern: str, recursive: bool) -> bool:
    """Return whether CMake's ``pattern`` matches ``file``, a path in the native folder."""
    path, wanted = PurePosixPath("native", file.as_posix()), PurePosixPath(pattern)
    in_folder = wanted.parent == path.parent or (recursive and wanted.parent in path.parents)
    return in_folder and fnmatchcase(path.name, wanted.name)
