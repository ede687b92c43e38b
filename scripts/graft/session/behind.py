"""What runs behind modules of torch, when they are imported or at once: the texts of a load, and hooks of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..deliver.shipped import publish
from . import caches, checkpoints, compiled
from .changes import Changes


class Texts(publish.Behind):
    """The texts of what ``built`` holds. What they change in torch is recorded, whenever they run."""

    def __init__(self, note: Mapping[str, Any], built: Path) -> None:
        super().__init__(note, lambda name: str(built / name))
        self._changes = Changes()
        self._is_recorded = False

    def begin(self) -> None:
        """Run the texts of modules that are loaded. If one raises, all are undone."""
        sys.meta_path.insert(0, self)
        try:
            with self._changes.recorded():
                self._is_recorded = True
                self.run_loaded()
        except BaseException:
            self.end()
            raise
        finally:
            self._is_recorded = False

    def end(self) -> None:
        """Undo what the texts did; the modules without one are torch's own again."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._changes.undo()

    def run(self, module: Any) -> None:
        """Run the text behind a module."""
        if self._is_recorded:
            super().run(module)
            return
        with self._changes.recorded():
            super().run(module)


class Hooks(publish.Behind):
    """The hooks of this package, which stay."""

    def __init__(self) -> None:
        self._hooks: dict[str, Callable[[], None]] = {**caches.BEHIND, **checkpoints.BEHIND, **compiled.BEHIND}
        super().__init__({"behind": dict.fromkeys(self._hooks, ""), "new": {}, "stars": {}}, lambda name: name)

    def begin(self) -> None:
        """Call the hooks of modules that are loaded, and from now on those of others."""
        sys.meta_path.insert(0, self)
        self.run_loaded()

    def run(self, module: Any) -> None:
        """Call the hook behind a module."""
        self._hooks[module.__name__]()
