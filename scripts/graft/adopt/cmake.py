"""What CMake compiled, according to the compile_commands.json of its build folder, and to the files beside it that say
how each library is linked.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = "compile_commands.json"

# The object of a source of a target: CMakeFiles/_C.dir/csrc/ops.cpp.o
_OBJECT = re.compile(r"(?:^|/)CMakeFiles/(?P<target>[^/]+)\.dir/")

# Words of a command that say what is compiled, not how; those with another word behind them first.
_VALUED = ("-o", "-MF", "-MT", "-MQ", "-isystem", "-I", "-D", "-U", "-include", "-x")
_OF_COMMANDS = re.compile(r"-[cgM].*|-MD|-MP|-W[lp],.*|-fPIC|-fdiagnostics-color.*")


def units_of_cmake(tree: Path) -> dict[str, dict[str, Any]]:
    """Return what CMake compiles, by target: as ``setup_child.extension`` describes extensions. Nothing if there is no
    such file in the tree or in a folder of builds.
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
    for target, unit in targets.items():
        _link(unit, target, file.resolve().parent)
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
        elif kind in ("-U", "-include"):
            _append(flags, f"{kind}{value}" if kind == "-U" else f"-include{value}")
        elif not kind and word.startswith("-") and not _OF_COMMANDS.fullmatch(word):
            _append(flags, word)
    unit["define"] = [each for each in unit["define"] if not each[0].endswith("_EXPORTS")]
    unit["own"] = sorted(own)


def _append(values: list[Any], value: Any) -> None:
    if value not in values:
        values.append(value)


def _link(unit: dict[str, Any], target: str, folder: Path) -> None:
    """Add how a target is linked, if that is known."""
    unit.update(link=[], libraries=[], library_dirs=[], file=f"{target}.so", is_library=True)
    for file in sorted(folder.rglob(f"CMakeFiles/{target}.dir/link.txt")):
        words = shlex.split(file.read_text(encoding="utf-8"))
        unit["is_library"] = "-shared" in words
        if "-o" in words[:-1]:
            unit["file"] = Path(words[words.index("-o") + 1]).name
        for word in words:
            if word.startswith("-l"):
                _append(unit["libraries"], word[2:])
            elif word.startswith("-L"):
                _append(unit["library_dirs"], str((file.parent.parent.parent / word[2:]).resolve()))
