"""The texts of a pin's files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from ..core.errors import PinError
from ..inputs.patches import Patch

# The oldest g++ that supports enough of a C++ standard for PyTorch's headers.
_GXX = {"c++17": 9, "c++20": 11}

_WHEELS = "\nwheels:\n"
_ABOVE_WHEELS = "# The official wheels, by version, compatibility tag and sha256. Their version is what PIN names."

_NEW = """\
# What the builds are pinned to. Nothing of this is repeated anywhere else.
version: {version}
source:
  git:
    commit: {commit}
compiler:
  # The oldest g++ that PyTorch's headers of this version compile with.
  gxx: {gxx}
  standard: {standard}
"""
# Used until the wheel was inspected.
EMPTY_PIN = "version: {version}\nsource: {{git: {{commit: ''}}}}\ncompiler: {{gxx: 0, standard: ''}}\n"
_SERIES = """\
# The patches of this pin, in the order in which they are applied. Lines that start with # are comments.
"""
_EMPTY_SERIES = (
    "# Nothing needs patching: what Graft adds to PyTorch's Python files goes behind them "
    "(scripts/graft/compose/appended).\n"
)


def new_pin(version: str, commit: str, standard: str) -> str:
    """The comment above the wheels of a new pin.

    Raises:
        PinError: no compiler is known for that C++ standard.
    """
    if standard not in _GXX:
        raise PinError(
            f"torch {version} is built with {standard}, but Graft knows no g++ for it",
            todo=f"add the oldest g++ that compiles it to _GXX in {Path(__file__).name}, beside {', '.join(_GXX)}",
        )
    return _NEW.format(version=version, commit=commit, gxx=_GXX[standard], standard=standard)


def with_wheels(text: str, path: Path, wheels: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of a pin with ``wheels`` in place of its own, or appended if it has none. The rest is unchanged.

    Raises:
        PinError: the section of the wheels is not the last one, so what follows it would be lost.
    """
    if _WHEELS in text and list(yaml.safe_load(text))[-1] != "wheels":
        raise PinError(f"{path}: `wheels:` is not its last section", todo="move it to the end")
    head = text.rpartition(_WHEELS)[0] if _WHEELS in text else f"{text.rstrip()}\n{_ABOVE_WHEELS}"
    lines = []
    for version, hashes in wheels.items():
        lines += [f"  {version}:", *(f"    {tag}: {sha256}" for tag, sha256 in hashes.items())]
    return head + _WHEELS + "\n".join(lines) + "\n"


def with_toolkit(text: str, cuda: str, packages: Mapping[str, str]) -> str:
    """Return the text of the toolkits with another version of CUDA appended."""
    lines = [f'"{cuda}":', *(f"  {requirement}: {sha256}" for requirement, sha256 in packages.items())]
    return text.rstrip() + "\n" + "\n".join(lines) + "\n"


def series(patches: Iterable[Patch], folder: Path) -> str:
    """Return a series of ``patches`` of other pins, for the pin in ``folder``."""
    names = [os.path.relpath(patch.path, folder) for patch in patches]
    return "".join([_SERIES, *(f"{name}\n" for name in names)]) if names else _EMPTY_SERIES
