"""Check the files of native folders: encoding, names, and files of the same name in two folders."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from ..inputs.native import AUTOCAST, DERIVATIVES, DOCS, DOCS_SUFFIX, FUNCTIONS, PYTHON, PYTHON_SUFFIXES, SAMPLES
from .finding import Findings

CPLUSPLUS = (".cpp", ".h", ".hpp", ".inl", ".inc", ".cu", ".cuh")

# Other extensions of C++ sources; PyTorch's CMake files glob *.cpp.
_OTHER_CPLUSPLUS = (".cc", ".cxx", ".c++", ".C", ".c")
_YAML = (FUNCTIONS, DERIVATIVES, AUTOCAST)
_TEXT = (*CPLUSPLUS, *PYTHON_SUFFIXES, DOCS_SUFFIX, ".yaml")


def own_files(folder: Path) -> list[Path]:
    """Return the files of ``folder`` as sorted relative paths, without tests, files of tools and Python's cache."""
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [name for name in names if name.parts[0] != "tests" and not _is_of_a_tool(name)]


def _is_of_a_tool(name: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in name.parts)


def check_files(natives: Sequence[Path], findings: Findings) -> None:
    """Check each file, and that no two folders have different files of the same name."""
    first: dict[Path, Path] = {}
    for native in natives:
        for name in own_files(native):
            path = native / name
            if name.suffix in _TEXT:
                _check_encoding(path, findings)
            if name.parts[0] != PYTHON.name:
                _check_name(path, name, findings)
            if name.suffix not in CPLUSPLUS and name.parent != DOCS:
                continue  # other texts are concatenated
            other = first.setdefault(name, path)
            if other != path and other.read_bytes() != path.read_bytes():
                what = f"{other} has the same name but different content"
                findings.add((path, 1, 0), what, "give one of them another name")


def _check_encoding(path: Path, findings: Findings) -> None:
    """A file that is not UTF-8 is not checked further."""
    data = path.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        column = len(before) - before.rfind("\n")
        what = f"not UTF-8: invalid byte 0x{data[error.start]:02x}"
        findings.add((path, before.count("\n") + 1, column), what, "save the file as UTF-8")
        findings.unreadable.add(path)


def _check_name(path: Path, name: Path, findings: Findings) -> None:
    """Files that look like part of the folder, but that no build reads."""
    place = (path, 1, 0)
    if path.suffix in _OTHER_CPLUSPLUS:
        findings.add(place, f"PyTorch's build does not compile {path.suffix} files", f"name it {path.stem}.cpp")
    elif path.suffix in (".yaml", ".yml") and name not in _YAML:
        what = f"this file is not used: the folder's YAML files are {', '.join(map(str, _YAML))}"
        findings.add(place, what, _named_for(path))
    elif name.parent == Path() and path.suffix == ".py" and name != SAMPLES:
        what = f"this file is not used: Python files belong below {PYTHON}/ and tests/, except {SAMPLES}"
        findings.add(place, what, "move it there, or delete it", is_warning=True)


def _named_for(path: Path) -> str:
    """Return a remedy for a YAML file with another name."""
    close = difflib.get_close_matches(path.stem, [name.stem for name in _YAML], n=1, cutoff=0.5)
    return f"name it {close[0]}.yaml" if close else "move its content there, or delete it"
