"""``python imports_child.py REQUEST OUT``: import the Python packages of a source tree whose extensions are not built
yet, and write the first module that is not installed as JSON. The user's Python runs this file, which needs torch
alone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class Tree(MetaPathFinder, Loader):
    """Imports the packages of the tree, and stand-ins for its extensions, whose attributes are mocks.

    Args:
        packages: the folders or files of each package, by name.
        extensions: the names of the extensions.
    """

    def __init__(self, packages: Mapping[str, Sequence[str]], extensions: Collection[str]) -> None:
        self._packages = packages
        self._extensions = extensions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module of the tree; None for other modules."""
        if name in self._extensions:
            return ModuleSpec(name, self)
        places = [Path(each) for each in self._packages.get(name, ())]
        folders = [str(each) for each in places if each.is_dir()]
        for file in (place / "__init__.py" if place.is_dir() else place for place in places):
            if file.is_file():
                return importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders or None)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the stand-in for an extension."""
        module = ModuleType(spec.name)
        module.__dict__["__getattr__"] = lambda name: MagicMock(name=name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the extension is not built."""

    def is_own(self, module: str) -> bool:
        """Return whether a module belongs to the tree: its build may write a module that is missing now."""
        return module.partition(".")[0] in {each.partition(".")[0] for each in (*self._packages, *self._extensions)}


def is_unconditional(frame: traceback.FrameSummary) -> bool:
    """Return whether the import of a frame is a top-level statement of its module, in no condition and no function."""
    body = ast.parse(Path(frame.filename).read_text(encoding="utf-8", errors="replace")).body
    imports = (each for each in body if isinstance(each, (ast.Import, ast.ImportFrom)))
    return any(each.lineno <= (frame.lineno or 0) <= (each.end_lineno or 0) for each in imports)


def missing(modules: Sequence[str], tree: Tree) -> dict[str, str]:
    """Import the modules. Return the first that is not installed, and the place of its import; empty if there is none.

    Conditional imports do not count. Other errors are ignored, since the extensions are not built.
    """
    import torch

    sys.meta_path.insert(0, tree)
    torch.ops.load_library = torch.classes.load_library = lambda *_: None
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_file()]
            frames = [each for each in frames if each.filename not in (__file__, importlib.__file__)]
            if error.name and not tree.is_own(error.name) and all(map(is_unconditional, frames)):
                return {"module": error.name, "place": f"{frames[-1].filename}:{frames[-1].lineno}"}
        except BaseException:
            continue
    return {}


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # the tree is the user's
    asked, out = map(Path, sys.argv[1:])
    sys.path.pop(0)  # the folder of this file
    request = json.loads(asked.read_text(encoding="utf-8"))
    found = missing(request["modules"], Tree(request["packages"], request["extensions"]))
    out.write_text(json.dumps(found), encoding="utf-8")
