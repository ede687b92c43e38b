"""Run code after torch's modules: the texts of loads, and Graft's hooks. It runs now, or when a module is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..deliver.shipped import publish
from . import caches, checkpoints, compiled
from .changes import Changes


class Texts(publish.Behind):
    """The Python texts of a build, which extend torch's modules. Records what they change in torch."""

    def __init__(self, note: Mapping[str, Any], built: Path) -> None:
        super().__init__(note, lambda name: str(built / name))
        self._changes = Changes()

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
