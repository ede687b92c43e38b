"""Run code after torch's modules: the texts of loads, and Graft's hooks. It runs now, or when a module is imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ..deliver.shipped import publish
from . import caches, checkpoints, compiled
from .changes import Changes


class Texts(publish.Behind):
    """The Python texts of a build, which extend torch's modules. Records what they change in torch.

    Args:
        note: the content of ``note.json``.
        built: the folder of the build.
        left_out: the names in Python of operators that have no texts, since other loads define them.
    """

    def __init__(self, note: Mapping[str, Any], built: Path, left_out: Collection[str] = ()) -> None:
        super().__init__(note, lambda name: str(built / name))
        self._changes = Changes()
        self._left_out = left_out

    def begin(self) -> None:
        """Run the texts of imported modules now, and those of others when imported. If one raises now, undo all."""
        sys.meta_path.insert(0, self)
        try:
            with self._changes.recorded():
                self.run_loaded()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Undo what the texts changed, and run none for modules that are imported later."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._changes.undo()

    def source(self, path: str) -> Any:
        """Return a text without what generated ones say of operators that are left out: docstrings, annotations."""
        text = super().source(path)
        if not self._left_out:
            return text
        tree = ast.parse(text)
        tree.body = [each for each in tree.body if not self._is_about_left_out(each)]
        for each in (node for statement in tree.body for node in ast.walk(statement) if isinstance(node, ast.Dict)):
            kept = [i for i, key in enumerate(each.keys) if not self._is_left_out(key)]
            each.keys, each.values = [each.keys[i] for i in kept], [each.values[i] for i in kept]
        return tree

    def _is_about_left_out(self, statement: ast.stmt) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        return isinstance(call, ast.Call) and any(map(self._is_left_out, call.args))

    def _is_left_out(self, node: ast.expr | None) -> bool:
        named = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
        return named in self._left_out

    def run(self, module: Any) -> None:
        """Run the text for a module, and record its changes."""
        with self._changes.recorded():
            super().run(module)


class Hooks(publish.Behind):
    """Graft's hooks, which are never removed."""

    def __init__(self) -> None:
        self._hooks: dict[str, Callable[[], None]] = {**caches.BEHIND, **checkpoints.BEHIND, **compiled.BEHIND}
        super().__init__({"behind": dict.fromkeys(self._hooks, ""), "new": {}, "stars": {}}, lambda name: name)

    def begin(self) -> None:
        """Call the hooks of imported modules, and later those of modules when they are imported."""
        sys.meta_path.insert(0, self)
        self.run_loaded()

    def run(self, module: Any) -> None:
        """Call the hook for a module."""
        self._hooks[module.__name__]()
