"""Guard sources that need extra processor features (``cpu-flags``): choose the code that other processors run.

A kernel of a dispatch stub is replaced by that of the next lower CPU capability. A source that is compiled once has no
lower version: its functions are renamed, and trampolines with the old names jump to them, or to a function that throws.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.symbols import SymbolFile
from ..core.files import write_if_changed
from ..core.layout import SOURCES
from ..core.process import run
from ..inputs.toolchain import Toolchain
from .stubs import stub_of
from .units import Unit

_FOLDER = Path("objects/guarded")


@dataclass(frozen=True)
class Variant:
    """The member of a dispatch stub with a kernel that needs ``features``, and the member to use instead."""

    member: str
    lower: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class Guard:
    """A function that needs ``features``: its symbol, its new symbol, its source, and whether it is exported."""

    function: str
    renamed: str
    features: tuple[str, ...]
    source: str
    is_exported: bool


def variants_of(units: Iterable[Unit], defined: Collection[str], toolchain: Toolchain) -> list[Variant]:
    """Return the kernels of dispatch stubs that need extra features. ``defined`` has the symbols of all ``units``."""
    found = []
    for unit in units:
        for member in sorted(SymbolFile(unit.target).defined()) if unit.features else ():
            if stub_of(member) and (lower := _next_lower(member, defined, list(toolchain.capabilities))):
                found.append(Variant(member, lower, unit.features))
    return found


def _next_lower(member: str, defined: Collection[str], capabilities: Sequence[str]) -> str:
    """Return the same stub's member for the next lower capability that is defined; empty if there is none."""
    own = re.search(rf"(\d+)({'|'.join(capabilities)})E$", member)
    lower = capabilities[: capabilities.index(own[2])] if own else ()
    names = (f"{member[: own.start()]}{len(each)}{each}E" for each in reversed(lower)) if own else ()
    return next((name for name in names if name in defined), "")


def guards_of(units: Iterable[Unit]) -> list[Guard]:
    """Return the global functions of the ``units`` that are compiled once and need extra features."""
    found = []
    for unit in filter(is_guarded, units):
        file, source = SymbolFile(unit.target), str(unit.source.relative_to(SOURCES))
        exported = file.defined(hidden=False)
        for function in sorted(file.defined_functions()):
            renamed = f"graft_guarded_{function}"
            found.append(Guard(function, renamed, unit.features, source, function in exported))
    return found


def is_guarded(unit: Unit) -> bool:
    """Return whether the functions of a unit are called through trampolines."""
    return bool(unit.features) and not unit.capability


def guarded_object(unit: Unit, guards: Iterable[Guard], toolchain: Toolchain) -> Path:
    """Write a copy of a unit's object with its functions renamed. Return its path."""
    target = _FOLDER / unit.target.relative_to("objects")
    names = target.with_suffix(".names")
    write_if_changed(names, "".join(f"{each.function} {each.renamed}\n" for each in guards))
    run([toolchain.program("objcopy"), f"--redefine-syms={names}", unit.target, target])
    return target
