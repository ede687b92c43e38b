"""Check which files a native folder has, and their encoding. torchgen is not needed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from ..inputs.native import DOCS, DOCS_SUFFIX, PYTHON, PYTHON_SUFFIXES, SAMPLES, YAML, NativeFolder
from .finding import Findings

# Other extensions of C++ sources; PyTorch's CMake files glob *.cpp.
_OTHER_CPLUSPLUS = (".cc", ".cxx", ".c++", ".C", ".c")


def check_files(folders: Sequence[NativeFolder], findings: Findings) -> None:
    """Check each file, and that no two folders have different files of the same name."""
    first: dict[Path, Path] = {}
    for folder in folders:
        for name in folder.unread:
            _check_unread(folder.path / name, name, findings)
        for name in folder.files:
            path = folder.path / name
            _check_encoding(path, findings)
            if name not in folder.cplusplus and name.parent != DOCS:
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


def _check_unread(path: Path, name: Path, findings: Findings) -> None:
    """Files that look like part of the folder, but that no build reads."""
    what, todo = "", ""
    if name.parts[0] == PYTHON.name:
        what, todo = f"not a {' or '.join(PYTHON_SUFFIXES)} file", "put only Python files into python/"
    elif name.parts[0] == DOCS.name:
        what, todo = "not the docstring of an operator", f"name it {DOCS}/<operator>{DOCS_SUFFIX}"
    elif path.suffix in _OTHER_CPLUSPLUS:
        what, todo = f"PyTorch's build does not compile {path.suffix} files", f"name it {path.stem}.cpp"
    elif path.suffix in (".yaml", ".yml"):
        what = f"this file is not used: the folder's YAML files are {', '.join(map(str, YAML))}"
        close = difflib.get_close_matches(path.stem, [known.stem for known in YAML], n=1, cutoff=0.5)
        todo = f"name it {close[0]}.yaml" if close else "move its content there, or delete it"
    elif name.parent == Path() and path.suffix == ".py":
        what = f"this file is not used: Python files belong below {PYTHON}/ and tests/, except {SAMPLES}"
        todo = "move it there, or delete it"
    if what:
        findings.add((path, 1, 0), what, todo, is_warning=path.suffix == ".py")
