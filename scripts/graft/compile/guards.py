"""Sources that need more of the processor than others (``cpu-flags``): what is called where a processor has less.

A kernel of a dispatch stub gives way to that of the next lower CPU capability. A source that is compiled once has no
other: its functions get other names, and trampolines of the old names jump to them, or to a function that throws.
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
    """A function that needs ``features``, the name that it gets, the source that has it, and whether it is exported."""

    function: str
    renamed: str
    features: tuple[str, ...]
    source: str
    is_exported: bool


def variants_of(units: Iterable[Unit], defined: Collection[str], toolchain: Toolchain) -> list[Variant]:
    """Return the kernels of dispatch stubs in ``units`` that need more; ``defined`` are the symbols of all units."""
    found = []
    for unit in units:
        for member in sorted(SymbolFile(unit.target).defined()) if unit.features else ():
            if stub_of(member) and (lower := _next_lower(member, defined, list(toolchain.capabilities))):
                found.append(Variant(member, lower, unit.features))
    return found


def _next_lower(member: str, defined: Collection[str], capabilities: Sequence[str]) -> str:
    """Return the member of the same stub for the next lower capability that there is; empty if there is none."""
    own = re.search(rf"(\d+)({'|'.join(capabilities)})E$", member)
    lower = capabilities[: capabilities.index(own[2])] if own else ()
    names = (f"{member[: own.start()]}{len(each)}{each}E" for each in reversed(lower)) if own else ()
    return next((name for name in names if name in defined), "")


def guards_of(units: Iterable[Unit]) -> list[Guard]:
    """Return the functions that others may call in those of ``units`` that are compiled once and need more."""
    found = []
    for unit in filter(is_guarded, units):
        file, source = SymbolFile(unit.target), str(unit.source.relative_to(SOURCES))
        exported = file.defined(hidden=False)
        for function in sorted(file.defined_functions()):
            renamed = f"graft_guarded_{function}"
            found.append(Guard(function, renamed, unit.features, source, function in exported))
    return found


def is_guarded(unit: Unit) -> bool:
    """Return whether the functions of a unit are called by trampolines."""
    return bool(unit.features) and not unit.capability


def guarded_object(unit: Unit, guards: Iterable[Guard], toolchain: Toolchain) -> Path:
    """Write the object of a unit with the new names of its functions. Return it."""
    target = _FOLDER / unit.target.relative_to("objects")
    names = target.with_suffix(".names")
    write_if_changed(names, "".join(f"{each.function} {each.renamed}\n" for each in guards))
    run([toolchain.program("objcopy"), f"--redefine-syms={names}", unit.target, target])
    return target
