"""What an author asks of adopt: on the command line, and in the file that adopt reads again at each run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..inputs.pyproject import read_toml

FILE = "adopt.toml"

_TEXT = """# What `graft adopt` is asked for. After an edit, and after an upgrade of the package, run
# `graft adopt --native <this folder>` again.
{lines}
"""
_HELP = {
    "modules": "the modules that register the operators; the first call imports the first",
    "prefix": "whether all names begin with the namespace",
    "own": "operators that get the extension's kernels and formulas in derivatives.yaml, in place of calls",
    "methods": 'operators whose first argument is renamed `self`, which makes them methods; ["all"] for all',
}


@dataclass(frozen=True)
class Asked:
    """What is asked for.

    Args:
        modules: the modules to import.
        prefix: whether all names begin with the namespace.
        methods: the operators whose first argument is to be called `self`; ``all`` for all of them.
        own: the operators that are to have the extension's kernels as their own.
    """

    modules: tuple[str, ...] = ()
    prefix: bool = False
    methods: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the text of the file."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        lines = [f"{name} = {_toml(value)}  # {_HELP[name]}" for name, value in values]
        return _TEXT.format(lines="\n".join(lines))


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def read_asked(folder: Path) -> Asked:
    """Read the file of a folder; what is not there has its default."""
    file = folder / FILE
    if not file.is_file():
        return Asked()
    table = read_toml(file)
    kinds = {each.name: type(each.default) for each in fields(Asked)}
    faults = [f"{file}: no key `{name}`" for name in table if name not in kinds]
    for name, kind in kinds.items():
        if name in table and not _is(table[name], kind):
            faults.append(f"{file}: {name} is not {'true or false' if kind is bool else 'a list of names'}")
    if faults:
        raise UsageError("\n".join(faults), todo=f"write it as adopt does: {'; '.join(_HELP)}")
    return with_given(Asked(), {name: tuple(each) if isinstance(each, list) else each for name, each in table.items()})


def _is(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def with_given(asked: Asked, given: Mapping[str, Any]) -> Asked:
    """Return what is asked for, with what was given on the command line."""
    return replace(asked, **{name: value for name, value in given.items() if value})
