"""Precompile the headers that a source includes first, once it was edited. This halves the time of its next
compilation.

A precompiled header of g++ holds the compiler's state after the preamble, and is valid only for the same flags. The
source is unchanged: its own ``#include`` lines find that everything was read already.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..core.files import write_atomically, write_if_changed
from .units import Unit

# The lines that a preamble may consist of; any other line ends it.
_PREAMBLE = re.compile(r'(?:[ \t]*(?://[^\n]*)?\n|#[ \t]*(?:include[ \t]*[<"][^\n]*|define[^\n\\]*|pragma once)\n)*')


def with_preambles(
    units: Iterable[Unit], work: Path, headers: Iterable[Path], compiler: str
) -> tuple[list[Unit], list[Unit]]:
    """Return the units, those of the folder's own sources with preambles if useful, and units that compile the
    preambles.

    Args:
        units: all units of a library.
        work: the work folder; the units' paths are relative to it.
        headers: the native folder's own headers, which may be edited.
        compiler: its version.
    """
    common = hashlib.sha256(compiler.encode())
    for path in headers:
        common.update(path.read_bytes())
    found, made = [], []
    for unit in units:
        is_own = unit.source.parts[0] == "src"
        new, preamble = _with_preamble(unit, work, common.hexdigest()) if is_own else (unit, None)
        found.append(new)
        made += [preamble] if preamble else []
    return found, made


def _with_preamble(unit: Unit, work: Path, common: str) -> tuple[Unit, Unit | None]:
    """Return a unit that uses its preamble if it exists, and a unit that compiles it for the next time if the source
    changed.
    """
    text = (work / unit.source).read_text(encoding="utf-8", errors="replace")
    preamble = preamble_of(text)
    if "#include" not in preamble:
        return unit, None
    header = Path("preambles", *unit.target.with_suffix(".h").parts[1:])
    made, note = header.with_name(f"{header.name}.gch"), work / header.with_suffix(".json")
    stamp = hashlib.sha256("\0".join([preamble, common, *unit.flags]).encode()).hexdigest()
    source = hashlib.sha256(text.encode()).hexdigest()
    old = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else {}
    is_same, is_edited = old.get("stamp") == stamp, old.get("source", source) != source
    if not is_same:
        (work / made).unlink(missing_ok=True)
    # The command of an unchanged source must not change, or it would be recompiled.
    is_used = is_same and (old["is_used"] or (is_edited and (work / made).is_file()))
    write_atomically(note, json.dumps({"stamp": stamp, "source": source, "is_used": is_used}))
    if not is_edited and not is_used:
        return unit, None
    # Compiled under the source's name: messages name the source, and it may include files next to it.
    write_if_changed(work / header, f'#line 1 "{unit.source}"\n{preamble}')
    maker = Unit(header, made, (*unit.flags, "-iquote", str(unit.source.parent), "-x", "c++-header"))
    if is_used:
        unit = replace(unit, flags=(*unit.flags, "-include", str(header)), needed=(made,))
    return unit, maker


def preamble_of(text: str) -> str:
    """Return the leading lines with only includes and macros."""
    found = _PREAMBLE.match(text)
    return found[0] if found else ""
