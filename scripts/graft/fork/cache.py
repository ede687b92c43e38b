"""The cache of source builds. It is outside the repository, so that a fresh clone does not start from nothing."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ..inputs.pin import Pin


@dataclass(frozen=True)
class Cache:
    """The folders shared by builds of one pin's source.

    Args:
        folder: the folder that contains them.
    """

    folder: Path

    @property
    def downloads(self) -> Path:
        """Downloaded files."""
        return self.folder / "downloads"

    @property
    def tree(self) -> Path:
        """The source tree."""
        return self.folder / "pytorch"

    def copy_of(self, checkout: Path) -> Path:
        """The copy of a user's checkout that is built."""
        return self.folder / f"pytorch-{hashlib.sha256(str(checkout).encode()).hexdigest()[:12]}"

    @property
    def snapshot(self) -> Path:
        """The inputs of the running build, as read at its start."""
        return self.folder / "snapshot"

    @property
    def environment(self) -> Path:
        """The virtual environment for building the tree."""
        return self.folder / f"environment-{sysconfig.get_config_var('SOABI')}"

    @property
    def ccache(self) -> Path:
        """Cached objects of the builds of every pin."""
        return self.folder.parent / "ccache"


def cache_of(pin: Pin) -> Cache:
    """Return the folders of ``pin``, below XDG_CACHE_HOME or ~/.cache."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return Cache((given if given.is_absolute() else Path.home() / ".cache") / "graft" / pin.path.parent.name)
