"""Native folders named after their content, for texts of ``load_inline`` and for pickled sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import UsageError
from ..core.files import folder_of
from ..core.layout import HOME

_FOLDER = HOME / "inline"
# The number of folders kept.
_KEPT = 256
_NAME = re.compile(r"(?!\.)[\w.-]+")


def require_name(name: object) -> str:
    """Return ``name`` if a load can have it: files are named after it.

    Raises:
        UsageError: it is not a valid name.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise UsageError(f"name={name!r}: a name has letters, digits, `_`, `-` and `.`, and does not begin with a `.`")


def folder_with(name: str, files: Mapping[str, bytes]) -> Path:
    """Return a native folder for the load ``name`` that contains exactly ``files``, by path."""
    return folder_of(_FOLDER, files, _KEPT, f"{name}-")
