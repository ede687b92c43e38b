"""The pyproject.toml of an adopted folder: with it, pip installs the operators, and the package that they need."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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


def project_text(folder: Path, asked: Asked, found: Mapping[str, Any], settings: str) -> str:
    """Return the text of pyproject.toml. ``settings`` is the TOML that describes the build of a source tree."""
    distributions = [each for module in asked.modules if (each := found["distributions"][module])]
    needed = dict.fromkeys(f'"{name}>={version.partition("+")[0]}"' for name, version in distributions)
    return _TEXT.format(
        builder=DISTRIBUTION,
        name=_name(folder, {name for name, _ in distributions} | {*asked.modules}),
        modules=", ".join(asked.modules),
        dependencies=", ".join(needed),
        settings=f"\n{settings}" if settings else "",
    )


def _name(folder: Path, others: Collection[str]) -> str:
    """Return the project's name, which differs from the names of its dependencies."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-") or "operators"
    return f"{name}-ops" if name in {re.sub(r"[-_.]+", "-", each).lower() for each in others} else name
