"""The pin file: which PyTorch is built upon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import InvalidRequirement, Requirement

from ..common.errors import PinError


@dataclass(frozen=True)
class GitSource:
    """A commit of a git repository.

    Args:
        repository: where it is cloned from.
        tag: the name under which a server hands the commit out.
        commit: what the tag must stand for.
    """

    repository: str
    tag: str
    commit: str


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
        requirement: what pip is asked for, and pins one version; None if there is no wheel to graft upon.
        sha256: compatibility tag of each known wheel, and its hash.
        gxx: the oldest major version of g++ that will do.
        standard: the C++ standard.
        architectures: of GPUs, for which CUDA sources are compiled against the wheel; none if it is one for CPUs.
    """

    path: Path
    version: str
    source: GitSource | DebianSource
    settings: Settings
    requirement: Requirement | None
    sha256: dict[str, str]
    gxx: int
    standard: str
    architectures: tuple[str, ...] = ()

    @property
    def wheel_version(self) -> str:
        """The version that the base wheel's metadata must give, such as ``2.13.0+cpu``.

        Raises:
            PinError: the pin is of a source tree only.
        """
        if self.requirement is None:
            raise PinError(
                f"{self.path}: this pin names no wheel",
                cause="it pins a source tree, which can only be built whole",
                todo="set BUILD=source, or PIN to a pin with a wheel",
            )
        (specifier,) = self.requirement.specifier
        return specifier.version

    def require_wheel_for_cpus(self) -> None:
        """Check that this pin can be grafted upon.

        Raises:
            PinError: its wheel is one for CUDA.
        """
        if self.architectures:
            raise PinError(
                f"{self.path}: this pin's wheel is for CUDA, and only wheels for CPUs are grafted upon",
                cause="it is there to compile CUDA sources against: `make check-cuda`",
                todo="set PIN to a pin without `cuda:`",
            )


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
        fields: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        wheel = fields.get("wheel") or {}
        return Pin(
            path=path,
            version=str(fields["version"]),
            source=_source(fields["source"]),
            settings=_settings(fields.get("build") or {}),
            requirement=Requirement(wheel["requirement"]) if wheel else None,
            sha256=dict(wheel["sha256"]) if wheel else {},
            gxx=int(fields["compiler"]["gxx"]),
            standard=fields["compiler"]["standard"],
            architectures=tuple(map(str, (fields.get("cuda") or {}).get("architectures") or ())),
        )
    except KeyError as error:
        raise PinError(f"{path}: the key {error} is missing", todo="compare it with another pin's file") from error
    except (TypeError, ValueError, AttributeError, InvalidRequirement, yaml.YAMLError) as error:
        raise PinError(f"{path}: {error}", todo="compare it with another pin's file") from error


def _source(fields: Mapping[str, Any]) -> GitSource | DebianSource:
    (kind,) = fields
    if kind == "git":
        return GitSource(**fields["git"])
    debian = dict(fields["debian"])
    return DebianSource(**{**debian, "version": str(debian["version"]), "sha256": dict(debian["sha256"])})


def _settings(fields: Mapping[str, Any]) -> Settings:
    without = dict.fromkeys(fields.get("without") or [], "0")
    variables = {name: str(value) for name, value in (fields.get("variables") or {}).items()}
    lists = {key: tuple(fields.get(key) or ()) for key in ("packages", "python", "flatbuffers")}
    return Settings(variables={**variables, **without}, **lists)
