"""The results of the stages up to linking, from which a delivery is composed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..inputs.native import NativeFolder
from .description import Description


@dataclass(frozen=True)
class Made:
    """What was built from a native folder.

    Args:
        hash_: a hash of the inputs.
        native: the native folder.
        description: the description of its operators.
        patched: the files that patches change, with the patches applied.
        generated: the folder of files that the generator wrote for the wheel.
        libraries: the linked libraries, by path below site-packages.
        cuda: the variables that give the same result again; empty if CUDA plays no part in it.
    """

    hash_: str
    native: NativeFolder
    description: Description
    patched: Mapping[str, bytes]
    generated: Path
    libraries: Mapping[str, Path]
    cuda: str = ""
