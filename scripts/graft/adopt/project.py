"""The pyproject.toml of an adopted folder: with it, pip installs the operators, and the package that they need."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.layout import DISTRIBUTION
from .adopt_options import Asked

_TEXT = """[build-system]
requires = ["{builder}"]
build-backend = "graft.backend"

[project]
name = "{name}"
version = "0.1.0"
description = "The operators of {modules} as PyTorch's own"
requires-python = ">=3.10"
dependencies = [{dependencies}]

[tool.graft]
native = "."
{settings}"""


def dependencies_of(asked: Asked, found: Mapping[str, Any], requires: Sequence[str]) -> list[str]:
    """Return the dependencies of the operators: the extension's distributions, and what a source tree ``requires``."""
    needed = (f"{name}>={version.partition('+')[0]}" for name, version in _distributions(asked, found))
    return list(dict.fromkeys([*needed, *requires]))


def _distributions(asked: Asked, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and version of each distribution that provides a module."""
    return [each for module in asked.modules if (each := found["distributions"][module])]


def project_text(
    folder: Path, asked: Asked, found: Mapping[str, Any], settings: str, dependencies: Sequence[str]
) -> str:
    """Return the text of pyproject.toml. ``settings`` is the TOML that describes the build of a source tree."""
    return _TEXT.format(
        builder=DISTRIBUTION,
        name=_name(folder, {name for name, _ in _distributions(asked, found)} | {*asked.modules}),
        modules=", ".join(asked.modules),
        dependencies=", ".join(map(json.dumps, dependencies)),
        settings=f"\n{settings}" if settings else "",
    )


def _name(folder: Path, others: Collection[str]) -> str:
    """Return the project's name, which differs from the names of its dependencies."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "operators"
    return f"{name}-ops" if name in {re.sub(r"[-_.]+", "-", each).lower() for each in others} else name
