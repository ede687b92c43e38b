"""Collect the files that are delivered beside torch: extensions that stay separate libraries, and Python packages."""

from __future__ import annotations

from pathlib import Path

from ..base.base import Base
from ..compile.extension_stub import extension_stub, folder_for
from ..inputs.snapshot import Snapshot
from .composition import Made


def beside_torch(made: Made, snapshot: Snapshot) -> dict[str, bytes]:
    """Return the files beside torch, by path below site-packages."""
    return snapshot.packages | {name: path.read_bytes() for name, path in made.extensions.libraries.items()}


def links_beside_torch(made: Made, snapshot: Snapshot) -> dict[str, bytes | Path]:
    """Return the same files for a tree, which links to the user's own files of packages."""
    libraries = {name: path.read_bytes() for name, path in made.extensions.libraries.items()}
    return {**snapshot.carried, **libraries}


def beside_thin(made: Made, snapshot: Snapshot, base: Base, package: str) -> dict[str, bytes]:
    """Return the files beside torch of a thin wheel: Python packages, the extensions for this torch, and stubs in their
    places, since the wheel may be for several torches.
    """
    stubs = {
        name: extension_stub(snapshot.toolchain, snapshot.work / "objects/extensions/stubs", package, name)
        for name in made.extensions.names
    }
    own = folder_for(package, base) if stubs else ""
    files = stubs | {f"{own}/{name}": path for name, path in made.extensions.libraries.items()}
    return snapshot.packages | {name: path.read_bytes() for name, path in files.items()}


def libraries_of(made: Made) -> list[Path]:
    """Return all libraries of a delivery."""
    return [*made.libraries.values(), *made.extensions.libraries.values()]
