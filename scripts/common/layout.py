"""Where everything lies. All that a build makes is below ``build/`` in the repository, but for the wheel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Layout:
    """The folders of one build: a pin, a native folder, and whether the code is to watch itself."""

    pin: str
    native: Path
    out: Path
    is_sanitized: bool = False

    def sanitized(self) -> Layout:
        """The folders of the same build with sanitizers, which shares nothing but the base with it."""
        name = hashlib.sha256(str(self.native).encode()).hexdigest()[:12]
        return replace(self, out=REPOSITORY / f"build/sanitized/{name}", is_sanitized=True)

    @property
    def patches(self) -> Path:
        """The pin file, the series and the patches."""
        return REPOSITORY / "patches" / self.pin

    @property
    def pin_build(self) -> Path:
        """What the builds on one pin share."""
        return REPOSITORY / "build" / self.pin

    @property
    def base(self) -> Path:
        """The base wheel, as downloaded and laid out."""
        return self.pin_build / "base"

    @property
    def work(self) -> Path:
        """What is made of one native folder.

        Folders are told apart by a hash of their path. Every work folder lies equally deep: compilers write relative
        paths into what they make, and the same input must give the same bytes.
        """
        name = hashlib.sha256(str(self.native).encode()).hexdigest()[:12]
        return self.pin_build / f"work-{name}{'-sanitized' if self.is_sanitized else ''}"

    @property
    def overlay(self) -> Path:
        """Files of the new wheel that differ from the base's, laid out as in the wheel."""
        return self.work / "overlay"

    @property
    def sources(self) -> Path:
        """A copy of the native folder, at its place in PyTorch's source tree: what is compiled is what was hashed."""
        return self.work / "src/ATen/native"

    @property
    def generated(self) -> Path:
        """Generated C++ sources."""
        return self.work / "generated"

    @property
    def objects(self) -> Path:
        """Object files and new libraries."""
        return self.work / "objects"
