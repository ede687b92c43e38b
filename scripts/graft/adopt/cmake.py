"""Read how CMake compiles and links a source tree, from its compile_commands.json and link.txt files."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.keys import FILE

_NAME = "compile_commands.json"

# The command that creates compile_commands.json, and the link.txt files beside it.
CONFIGURE = 'cmake -S {source} -B build -G "Unix Makefiles" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON'

# The path of an object file, with its target: CMakeFiles/_C.dir/csrc/ops.cpp.o
_OBJECT = re.compile(r"(?:^|/)CMakeFiles/(?P<target>[^/]+)\.dir/")

# Flags that take a value, which may be the next word.
_VALUED = ("-o", "-MF", "-MT", "-MQ", "-isystem", "-I", "-D", "-U", "-include", "-x", "-ccbin")
# Flags that are not copied: they are about one command, or Graft's builds set them.
_OF_COMMANDS = re.compile(r"-c|-g(\d|gdb.*)?|-M[A-Z]*|-W[lp],.*|(-Xcompiler=)?-fPIC|-fdiagnostics-color.*")

# Other flags whose value is the next word.
_PAIRED = re.compile(r"-X[a-z]+|-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code")

# A library that a link names by its path.
_LIBRARY = re.compile(r"(?P<folder>.*/)?(?P<name>[^/]+\.(so(\.\d+)*|a))", re.S)
_OF_TORCH = re.compile(r"/torch/lib/|(^|/)libpython3[^/]*$")


def units_of_cmake(tree: Path) -> dict[str, dict[str, Any]]:
    """Return the libraries that CMake builds, by target, in the form of ``setup_child.extension``. Empty if neither the
    tree nor its build folders have a compile_commands.json.

    Raises:
        UsageError: there is no link.txt for a target.
    """
    file = next((path for path in _places(tree) if path.is_file()), None)
    if file is None:
        return {}
    targets: dict[str, dict[str, Any]] = {}
    for entry in json.loads(file.read_text(encoding="utf-8")):
        words = list(entry.get("arguments") or shlex.split(entry["command"]))
        folder = Path(entry["directory"])
        found = _OBJECT.search(_output(entry, words))
        if found:
            _add(targets.setdefault(found["target"], {}), words, folder, Path(os.path.normpath(folder / entry["file"])))
    links = {target: sorted(file.resolve().parent.rglob(f"CMakeFiles/{target}.dir/link.txt")) for target in targets}
    if unknown := [target for target, found in links.items() if not found]:
        todo = f"run `{CONFIGURE.format(source='.')}` in the tree, or write [[tool.graft.extensions]] in {FILE} by hand"
        raise UsageError(f"{file}: nothing beside it says how CMake links {', '.join(unknown)}", todo=todo)
    for target, unit in targets.items():
        unit.update(link=[], libraries=[], library_dirs=[], file=f"{target}.so", is_library=True)
        for link in links[target]:
            _link(unit, link)
    return {target: unit for target, unit in targets.items() if unit["is_library"]}


def _places(tree: Path) -> list[Path]:
    folders = [tree, tree / "build", *sorted(tree.glob("build/*")), *sorted(tree.glob("cmake-build*"))]
    return [folder / _NAME for folder in folders]


def _output(entry: Mapping[str, Any], words: list[str]) -> str:
    if "output" in entry:
        return str(entry["output"])
    return words[words.index("-o") + 1] if "-o" in words[:-1] else ""


def _add(unit: dict[str, Any], words: list[str], folder: Path, source: Path) -> None:
    """Add a source to a target."""
    is_cuda = source.suffix == ".cu"
    for key in ("sources", "include_dirs", "define", "undef", "cxx", "nvcc"):
        unit.setdefault(key, [])
    unit["sources"].append(str(source))
    flags, own = unit["nvcc" if is_cuda else "cxx"], set(unit.setdefault("own", []))
    waiting = iter(words[1:])
    for word in waiting:
        kind = next((each for each in _VALUED if word.startswith(each)), "")
        value = (word[len(kind) :] or next(waiting, "")) if kind else ""
        if kind in ("-I", "-isystem"):
            path = str((folder / value).resolve())
            _append(unit["include_dirs"], path)
            own |= {path} if re.search(r"/torch/include(/|$)|/include/python3", path) else set()
        elif kind == "-D":
            name, is_valued, text = value.partition("=")
            _append(unit["define"], [name, text if is_valued else None])
        elif kind == "-include":
            header = folder / value
            _append_pair(flags, kind, os.path.normpath(header) if header.is_file() else value)
        elif kind == "-U":
            _append(flags, f"{kind}{value}")
        elif _PAIRED.fullmatch(word):
            value = next(waiting, "")
            if not _OF_COMMANDS.fullmatch(value):
                _append_pair(flags, word, value)
        elif not kind and word.startswith("-") and not _OF_COMMANDS.fullmatch(word):
            _append(flags, word)
    unit["define"] = [each for each in unit["define"] if not each[0].endswith("_EXPORTS")]
    unit["own"] = sorted(own)


def _append(values: list[Any], value: Any) -> None:
    if value not in values:
        values.append(value)


def _append_pair(values: list[str], word: str, value: str) -> None:
    if (word, value) not in pairwise(values):
        values += [word, value]


def _link(unit: dict[str, Any], file: Path) -> None:
    """Add the link flags of a target, from its link.txt."""
    folder = file.parent.parent.parent
    words = shlex.split(file.read_text(encoding="utf-8"))
    unit["is_library"] = "-shared" in words
    waiting = iter(words)
    for word in waiting:
        if word == "-o":
            unit["file"] = Path(next(waiting, unit["file"])).name
        elif word.startswith("-l"):
            _append(unit["libraries"], word[2:])
        elif word.startswith("-L"):
            _append(unit["library_dirs"], str((folder / word[2:]).resolve()))
        elif not word.startswith("-") and (found := _LIBRARY.fullmatch(word)) and not _OF_TORCH.search(word):
            _append(unit["libraries"], _as_named(found["name"]))
            _append(unit["library_dirs"], str((folder / (found["folder"] or "")).resolve()))


def _as_named(file: str) -> str:
    """Return the name by which the linker's flag -l finds a library's file."""
    found = re.fullmatch(r"lib(\w[\w.+-]*)\.so", file)
    return found[1] if found else f":{file}"
