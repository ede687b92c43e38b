"""The pin file: which PyTorch is built upon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from .errors import PinError


@dataclass(frozen=True)
class Pin:
    """A pinned PyTorch.

    Args:
        version: as PyTorch names the release.
        commit: of the source tree.
        requirement: what pip is asked for; pins one version.
        sha256: compatibility tag of each known wheel, and its hash.
        gxx: the oldest major version of g++ that will do.
        standard: the C++ standard.
    """

    version: str
    commit: str
    requirement: Requirement
    sha256: dict[str, str]
    gxx: int
    standard: str

    @property
    def wheel_version(self) -> str:
        """The version that the base wheel's metadata must give, such as ``2.13.0+cpu``."""
        (specifier,) = self.requirement.specifier
        return specifier.version


def load_pin(folder: Path) -> Pin:
    """Read ``folder/pin.yaml``.

    Raises:
        PinError: there is none, or a field is missing or of the wrong kind.
    """
    path = folder / "pin.yaml"
    if not path.is_file():
        pins = sorted(entry.parent.name for entry in folder.parent.glob("*/pin.yaml"))
        raise PinError(f"{path}: no such pin", todo=f"set PIN to one of: {', '.join(pins) or '(there is none)'}")
    try:
        fields: dict[str, Any] = yaml.safe_load(path.read_text())
        return Pin(
            version=str(fields["version"]),
            commit=fields["git"]["commit"],
            requirement=Requirement(fields["wheel"]["requirement"]),
            sha256=dict(fields["wheel"]["sha256"]),
            gxx=int(fields["compiler"]["gxx"]),
            standard=fields["compiler"]["standard"],
        )
    except KeyError as error:
        raise PinError(f"{path}: the key {error} is missing", todo="compare it with another pin's file") from error
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise PinError(f"{path}: {error}", todo="compare it with another pin's file") from error
