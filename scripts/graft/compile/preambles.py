"""Precompile the headers that a source includes first, once it was edited twice within an hour; where that can be done
while the user writes, after the first edit. This halves the time of its next compilations.

A precompiled header of g++ holds the compiler's state after the preamble, and is valid only for the same flags. The
source is unchanged: include guards make its own ``#include`` lines read nothing again. A source whose preamble includes
a file without a guard, such as another source, has no precompiled header.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import islice, pairwise
from pathlib import Path

from ..core.files import read_json, try_lock, write_atomically, write_if_changed
from ..core.layout import SOURCES
from ..cpp.includes import INCLUDE, included_directly, texts_in
from . import idle
from .manifest import InputFiles, Manifest, inputs_of
from .units import CXX, Unit

# 0 precompiles nothing.
VARIABLE = "GRAFT_PRECOMPILE"

# The folder of precompiled headers, in the work folder.
PREAMBLES = "preambles"

# How many precompiled headers are kept in a work folder. Each takes up to half a gigabyte.
_KEPT = 2

# Two edits within this many seconds show that someone works on the source.
_SOON = 3600

# The lines that a preamble may consist of; any other line ends it.
_PREAMBLE = re.compile(r'(?:[ \t]*(?://[^\n]*)?\n|#[ \t]*(?:include[ \t]*[<"][^\n]*|define[^\n\\]*|pragma once)\n)*')

# The guard of a file that is read only once.
_GUARD = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+once\b"
    r"|\A(?:\s|//[^\n]*\n|/\*.*?\*/)*#[ \t]*ifndef[ \t]+(\w+)\s*?\n[ \t]*#[ \t]*define[ \t]+\1\b",
    re.M | re.S,
)


class Preambles:
    """The precompiled headers of a build in the folder ``work``, for the ``compiler`` with this description."""

    def __init__(self, work: Path, files: InputFiles, compiler: str) -> None:
        self._work = work
        self._files = files
        self._compiler = compiler
        self._is_held = False
        self.makers: dict[Unit, str] = {}  # with the stamp of what each makes

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keep other processes from the precompiled headers of this folder while the body runs. Yield False if another
        one has them: then ``use`` and ``note`` do nothing.
        """
        with (self._work / f"{PREAMBLES}.lock").open("a", encoding="utf-8") as file:
            self._is_held = try_lock(file)
            try:
                yield self._is_held
            finally:
                self._is_held = False

    def use(self, units: Iterable[Unit]) -> dict[Unit, Unit]:
        """Map each unit to the unit to compile in its place, which uses a precompiled header if there is a valid one.
        If there is none, and the source was edited twice, ``makers`` gets a unit that makes one for the next build.
        """
        self.makers = {}
        if not self._is_held:
            return {unit: unit for unit in units}
        used = {unit: self._with_preamble(unit) for unit in units}
        self.makers = dict(islice(self.makers.items(), _KEPT))
        return used

    def note(self) -> None:
        """Write the manifests of the headers that this build precompiled. Delete all but the last used headers."""
        if not self._is_held:
            return
        for maker, stamp in self.makers.items():
            note = self._work / maker.source.with_suffix(".json")
            read = inputs_of(self._work / f"{maker.target}.d")
            manifest, changed = self._files.manifest(read)
            is_made = (self._work / maker.target).is_file() and manifest.is_whole and read and not changed
            # Another process may have built a later text since.
            if is_made and (noted := read_json(note)).get("stamp") == stamp:
                write_atomically(note, json.dumps({**noted, "manifest": asdict(manifest)}))
        made = sorted((self._work / PREAMBLES).rglob("*.gch"), key=lambda path: path.stat().st_mtime_ns)
        for path in made[:-_KEPT]:
            path.unlink()

    def _with_preamble(self, unit: Unit) -> Unit:
        is_own = unit.is_own and unit.compiler == CXX and not unit.is_tried
        text = (self._work / unit.source).read_text(encoding="utf-8", errors="replace") if is_own else ""
        others, first = _included_first(unit.flags)
        preamble = f"{first}{preamble_of(text)}"
        if not is_own or "#include" not in preamble or not self._is_read_once(unit.source, preamble, _searched(unit)):
            return unit
        # Compilers look for quoted headers beside the preamble first. No header that a source includes has this name.
        header = Path(PREAMBLES, *unit.target.with_suffix(".preamble.h").parts[1:])
        made, note = header.with_name(f"{header.name}.gch"), self._work / header.with_suffix(".json")
        stamp = hashlib.sha256("\0".join([preamble, self._compiler, *unit.flags]).encode()).hexdigest()
        source = hashlib.sha256(text.encode()).hexdigest()
        old, now = read_json(note), time.time()
        is_edited, is_valid = old.get("source", source) != source, False
        is_next_soon = is_edited and (idle.may_wait() or now < old.get("edited", 0) + _SOON)
        with suppress(KeyError, TypeError, AttributeError):
            is_valid = old["stamp"] == stamp and Manifest(**old["manifest"]).holds(self._files)
            is_valid = is_valid and (self._work / made).is_file()
        new = {"stamp": stamp, "source": source, "edited": now if is_edited else old.get("edited", 0)}
        new |= {"manifest": old["manifest"]} if is_valid else {}
        write_atomically(note, json.dumps(new))
        if is_valid:
            os.utime(self._work / made)
            return replace(unit, flags=(*others, "-include", str(header)), needed=(made,))
        (self._work / made).unlink(missing_ok=True)
        if is_next_soon and os.environ.get(VARIABLE) != "0":
            # Messages name the source, not the preamble. The preamble may include files next to the source.
            write_if_changed(self._work / header, f'{first}#line 1 "{unit.source}"\n{preamble_of(text)}')
            flags = (*others, "-iquote", str(unit.source.parent), "-x", "c++-header")
            self.makers[Unit(header, made, flags)] = stamp
        return unit

    def _is_read_once(self, source: Path, preamble: str, searched: Sequence[Path]) -> bool:
        """Return whether the user's files in the preamble have guards, so that the source reads none of them again."""
        place = SOURCES
        own = included_directly(texts_in(self._work / place), source.relative_to(place), preamble, searched)
        paths = [
            *(self._work / place / name for name in own),
            *(Path(each) for each in INCLUDE.findall(preamble) if each.startswith("/")),
        ]
        return all(
            _GUARD.search(path.read_text(encoding="utf-8", errors="replace")) for path in paths if path.is_file()
        )


def _searched(unit: Unit) -> list[Path]:
    """Return the folders of headers that a unit searches in the native folders."""
    folders = (Path(flag.removeprefix("-I")) for flag in unit.flags if flag.startswith(f"-I{SOURCES}"))
    return [folder.relative_to(SOURCES) for folder in folders if folder.is_relative_to(SOURCES)]


def _included_first(flags: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return flags without ``-include``, and ``#include`` lines for the same headers. Compilers use only one
    precompiled header, and only as the first header.
    """
    names = [name for flag, name in pairwise(flags) if flag == "-include"]
    others = (flag for before, flag in pairwise(("", *flags)) if "-include" not in (before, flag))
    return tuple(others), "".join(f'#include "{name}"\n' for name in names)


def preamble_of(text: str) -> str:
    """Return the leading lines of a source, which only include files and define macros."""
    found = _PREAMBLE.match(text)
    return found[0] if found else ""
