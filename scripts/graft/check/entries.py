"""The entries of a native folder's YAML; what cannot be read is a finding."""

from __future__ import annotations

from pathlib import Path

import yaml

from ..inputs import entries
from ..inputs.entries import Entry, Place, text_of
from .finding import Findings

__all__ = ["Entry", "Place", "compose", "read_entries", "text_of"]


def compose(path: Path, findings: Findings) -> yaml.Node | None:
    """Return the syntax tree of a YAML file, or None if it does not exist. Invalid YAML is reported."""
    return None if path in findings.unreadable else entries.compose(path, findings.add)


def read_entries(path: Path, findings: Findings) -> list[Entry]:
    """Read a YAML list of mappings. Anything else is reported."""
    return [] if path in findings.unreadable else entries.read_entries(path, findings.add)
