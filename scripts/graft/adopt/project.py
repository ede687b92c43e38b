"""The pyproject.toml of an adopted folder: with it, pip installs the operators, and the package that they need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ..core.layout import DISTRIBUTION
from .asked import Asked

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


def project_text(folder: Path, asked: Asked, found: Mapping[str, Any], settings: str) -> str:
    """Return the text of the file. ``settings`` are those of a source tree."""
    distributions = filter(None, (found["distributions"][module] for module in asked.modules))
    needed = dict.fromkeys(f'"{name}>={version.partition("+")[0]}"' for name, version in distributions)
    return _TEXT.format(
        builder=DISTRIBUTION,
        name=canonicalize_name(folder.name),
        modules=", ".join(asked.modules),
        dependencies=", ".join(needed),
        settings=f"\n{settings}" if settings else "",
    )
