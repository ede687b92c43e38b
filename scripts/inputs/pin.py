"""The pin file: which PyTorch is built upon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..common.errors import PinError

UPSTREAM = "https://github.com/pytorch/pytorch.git"

# Beside the folders of the pins, several of which have the same version of CUDA.
TOOLKITS = "cuda-toolkits.yaml"


@dataclass(frozen=True)
class GitSource:
    """A commit of a git repository.

    Args:
        tag: the name under which a server hands the commit out.
        commit: what the tag must stand for.
        repository: where it is cloned from.
    """

    tag: str
    commit: str
    repository: str = UPSTREAM


@dataclass(frozen=True)
class DebianSource:
    """A source package of Debian.

    Args:
        package: its name.
        version: its version.
        sha256: the package's files, its .dsc among them, and their hashes.
    """

    package: str
    version: str
    sha256: Mapping[str, str]


@dataclass(frozen=True)
class Settings:
    """How the source is built.

    Args:
        variables: what PyTorch's setup.py reads from the environment.
        packages: the system's packages that it needs, by their names in Debian.
        python: what pip installs for it.
        flatbuffers: schemas in the tree whose headers must be those of the system's flatc.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    flatbuffers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pin:
    """A pinned PyTorch.

    Args:
        path: the pin file.
        version: as PyTorch names the release.
        source: where the source tree comes from.
        settings: how that is built.
        wheels: the known wheels of the release by their version, such as ``2.13.0+cpu``: compatibility tag and sha256.
        chosen: the version of the wheel that is grafted upon; empty if there is none.
        toolkits: what compiles CUDA sources, by version of CUDA: pip's requirements, each with the sha256 of its file.
        gxx: the oldest major version of g++ that will do.
        standard: the C++ standard.
    """

    path: Path
    version: str
    source: GitSource | DebianSource
    settings: Settings
    wheels: Mapping[str, Mapping[str, str]]
    chosen: str
    toolkits: Mapping[str, Mapping[str, str]]
    gxx: int
    standard: str

    @property
    def wheel_version(self) -> str:
        """The version that the base wheel's metadata must give, such as ``2.13.0+cpu``.

        Raises:
            PinError: the pin is of a source tree only.
        """
        if not self.chosen:
            raise PinError(
                f"{self.path}: this pin names no wheel",
                cause="it pins a source tree, which can only be built whole",
                todo="set BUILD=source, or PIN to a pin with a wheel",
            )
        return self.chosen

    @property
    def sha256(self) -> Mapping[str, str]:
        """Compatibility tag of each known wheel of the chosen version, and its hash."""
        return self.wheels[self.wheel_version]

    @property
    def requirement(self) -> str:
        """What pip is asked for. ``===`` takes no other local version: ``2.13.0`` is not ``2.13.0+cpu``."""
        return f"torch==={self.wheel_version}"


def load_pin(folder: Path, wheel_version: str = "", *, is_installed: bool = False) -> Pin:
    """Read ``folder/pin.yaml``.

    Args:
        folder: of ``patches/``.
        wheel_version: chooses one of the pin's wheels; empty for the first.
        is_installed: the torch of this version is there already, so the pin need not know it.

    Raises:
        PinError: there is none, it knows no such wheel, or a field is missing or of the wrong kind.
    """
    path = folder / "pin.yaml"
    if not path.is_file():
        raise PinError(f"{path}: no such pin", todo=f"set PIN to one of: {', '.join(known_pins(folder.parent))}")
    try:
        fields: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        version = str(fields["version"])
        wheels = {str(name): dict(tags) for name, tags in (fields.get("wheels") or {}).items()}
        pin = Pin(
            path=path,
            version=version,
            source=_source(fields["source"], version),
            settings=_settings(fields.get("build") or {}),
            wheels=wheels,
            chosen=wheel_version if is_installed else (wheel_version or next(iter(wheels))) if wheels else "",
            toolkits=_toolkits(folder.parent / TOOLKITS),
            gxx=int(fields["compiler"]["gxx"]),
            standard=fields["compiler"]["standard"],
        )
    except KeyError as error:
        raise PinError(f"{path}: the key {error} is missing", todo="compare it with another pin's file") from error
    except (TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise PinError(f"{path}: {error}", todo="compare it with another pin's file") from error
    if pin.chosen and pin.chosen not in wheels and not is_installed:
        raise PinError(
            f"{path}: it knows no wheel of version {pin.chosen}",
            cause=f"it knows {', '.join(wheels)}",
            todo=f"set PIN to one of these, or add that wheel with `make pin TORCH={pin.chosen}`",
        )
    return pin


def known_pins(patches: Path, *, are_wheels_needed: bool = False) -> list[str]:
    """What PIN can be: the versions of all known wheels and, unless wheels are needed, of source trees without one."""
    pins = [load_pin(path.parent) for path in sorted(patches.glob("*/pin.yaml"))]
    return [name for pin in pins for name in (pin.wheels or ([] if are_wheels_needed else [pin.version]))]


def _toolkits(path: Path) -> dict[str, dict[str, str]]:
    texts = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {str(version): dict(files) for version, files in texts.items()}


def _source(fields: Mapping[str, Any], version: str) -> GitSource | DebianSource:
    (kind,) = fields
    if kind == "git":
        return GitSource(**{"tag": f"v{version}", **fields["git"]})
    debian = dict(fields["debian"])
    return DebianSource(**{**debian, "version": str(debian["version"]), "sha256": dict(debian["sha256"])})


def _settings(fields: Mapping[str, Any]) -> Settings:
    without = dict.fromkeys(fields.get("without") or [], "0")
    variables = {name: str(value) for name, value in (fields.get("variables") or {}).items()}
    lists = {key: tuple(fields.get(key) or ()) for key in ("packages", "python", "flatbuffers")}
    return Settings(variables={**variables, **without}, **lists)
