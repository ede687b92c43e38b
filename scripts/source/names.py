"""The added operators of a tree that is the fork, by name."""

from __future__ import annotations

import re
from pathlib import Path

from ..merge import MARK
from .tree import FUNCTIONS_YAML


def names_in(yaml: str) -> set[str]:
    """The names of the operators in the text of native_functions.yaml, without overloads and the in-place mark."""
    return {name.rstrip("_") for name in re.findall(r"^- func: (?:\w+::)?(\w+)", yaml, re.M)}


def operator_names(tree: Path) -> list[str]:
    """The names of the operators behind upstream's own."""
    return sorted(names_in((tree / FUNCTIONS_YAML).read_text().rpartition(MARK)[2]))


def autograd_node(name: str) -> str:
    """What the names of an operator's autograd nodes begin with: ``MyOpBackward``."""
    return f"{''.join(part[:1].upper() + part[1:] for part in name.split('_'))}Backward"
