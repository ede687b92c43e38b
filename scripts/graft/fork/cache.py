"""The cache of one pin's source builds, with sources and environments; and the inputs, which are read once."""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import MissingError
from ..core.files import build_lock, free_bytes
from ..core.layout import Layout, store
from ..inputs.pin import Pin
from ..inputs.snapshot import Snapshot, take_snapshot

# Space for the sources, the objects of a whole build and the wheel.
_NEEDED_BYTES = 8 * 1024**3

# Environment variables that PyTorch's own build reads.
_READ_BY_PYTORCH = re.compile(r"\w*FLAGS|(CMAKE|USE|BUILD|TORCH|PYTORCH|CUDNN|NCCL|MKL|BLAS)_\w+|CC|BLAS|INTEL_\w+")


@dataclass(frozen=True)
class Cache:
    """The files that source builds of one pin share, in ``folder``. It is outside of this repository, so that a fresh
    clone need not start from nothing.
    """

    folder: Path

    @property
    def tree(self) -> Path:
        """The source tree."""
        return self.folder / "pytorch"

    @property
    def environment(self) -> Path:
        """The virtual environment for building the tree."""
        return self.folder / f"environment-{sysconfig.get_config_var('SOABI')}"

    def copy_of(self, checkout: Path) -> Path:
        """The copy of a user's checkout that is built."""
        return self.folder / f"pytorch-{hashlib.sha256(str(checkout).encode()).hexdigest()[:12]}"

    def require_space(self) -> None:
        """Raise MissingError unless there is space for a tree and its build."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if free_bytes(self.folder) < _NEEDED_BYTES:
            raise MissingError(
                f"{self.folder}: less than {_NEEDED_BYTES >> 30} GiB are free",
                todo="free some space, or set XDG_CACHE_HOME to a folder on another disk",
            )


def cache_of(pin: Pin) -> Cache:
    """Return the folders of ``pin``."""
    return Cache(store() / pin.path.parent.name)


def snapshot_for_tree(layout: Layout) -> Snapshot:
    """Read the inputs of a fork. Refuse native folders with settings, since PyTorch's own build compiles the files."""
    snapshot = take_snapshot(layout)
    for folder in snapshot.read.folders:
        folder.settings.require_none()
    return snapshot


@contextmanager
def read_inputs(layout: Layout) -> Iterator[tuple[Snapshot, Cache]]:
    """Read the inputs of a build in the pin's cache, and lock that cache while the body runs."""
    snapshot = snapshot_for_tree(layout)
    cache = cache_of(snapshot.pin)
    kept = sorted(f"{name}={value}" for name, value in os.environ.items() if _READ_BY_PYTORCH.fullmatch(name))
    snapshot = replace(snapshot, work=cache.folder, settings=(*snapshot.settings, *kept))
    with build_lock(cache.folder):
        yield snapshot, cache
