"""What the stages up to linking made: what a delivery is composed of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..inputs.native import NativeFolder
from .description import Description


@dataclass(frozen=True)
class Made:
    """What was made of a native folder.

    Args:
        hash_: tells it from what other inputs make.
        native: the folder.
        description: of its operators.
        patched: the files that patches edit, patched.
        generated: the folder of files that the generator made for the wheel as they are.
        libraries: by their paths below site-packages.
    """

    hash_: str
    native: NativeFolder
    description: Description
    patched: Mapping[str, bytes]
    generated: Path
    libraries: Mapping[str, Path]
