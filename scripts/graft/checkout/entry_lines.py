"""Write entries of a checkout's YAML file at the lines that they have there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from ..inputs.entries import operator_of


def text_at_lines(after: str, found: Mapping[str, dict[str, Any] | None]) -> str:
    """Return the text ``after`` with the entries ``found`` only; the other lines are blank.

    Args:
        after: the text of the checkout's file.
        found: by operator, the fields of an entry that replaces PyTorch's, or None for one that is new.
    """
    parts = re.split(r"^(?=- (?:func|name): )", after, flags=re.M)
    lines = "\n" * parts[0].count("\n")
    for part in parts[1:]:
        name = operator_of(part)
        fields = found.get(name)
        if name in found and fields is None:
            lines += part
        else:
            # Write it in one line: it may have more keys than the checkout's, and later entries must not move.
            lines += f"- {_flow(fields)}" if fields else ""
            lines += "\n" * part.count("\n")
    return lines if found else ""


def _flow(fields: dict[str, Any]) -> str:
    return str(yaml.safe_dump(fields, sort_keys=False, default_flow_style=True, width=10**9)).strip()
