"""Sections of ELF files: build-ids, the libraries that are loaded, symbol versions."""

from __future__ import annotations

import mmap
from functools import cached_property
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import NoteSection, Section

# pyelftools' attributes for the strings of the dynamic section.
_DYNAMIC_TEXTS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}


class ElfFile:
    """An ELF64 file, opened for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._elf = ELFFile(self.data)

    def section(self, name: str) -> Section | None:
        """Return the section with this name."""
        section: Section | None = self._elf.get_section_by_name(name)
        return section

    @property
    def machine(self) -> str:
        """The processor that it is for, ``EM_X86_64`` for example."""
        return str(self._elf["e_machine"])

    @cached_property
    def build_id(self) -> str:
        """The GNU build-id as hexadecimal digits; empty if there is none."""
        section = self.section(".note.gnu.build-id")
        notes = section.iter_notes() if isinstance(section, NoteSection) else ()
        return next((str(note["n_desc"]) for note in notes if note["n_type"] == "NT_GNU_BUILD_ID"), "")

    def dynamic(self) -> dict[str, list[str]]:
        """The strings of the dynamic section by tag: ``{"DT_NEEDED": ["libc.so.6", ...], "DT_RPATH": [...]}``."""
        section = self.section(".dynamic")
        found: dict[str, list[str]] = {}
        for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
            if attribute := _DYNAMIC_TEXTS.get(tag.entry.d_tag):
                found.setdefault(tag.entry.d_tag, []).append(getattr(tag, attribute))
        return found

    def needed_versions(self) -> dict[str, set[str]]:
        """Return the versioned symbols that the file needs, by version: ``{"GLIBC_2.29": {"exp", "log2"}, ...}``."""
        needed, versions = self.section(".gnu.version_r"), self.section(".gnu.version")
        if not isinstance(needed, GNUVerNeedSection) or not isinstance(versions, GNUVerSymSection):
            return {}
        names = {entry["vna_other"]: entry.name for _, entries in needed.iter_versions() for entry in entries}
        symbols: dict[str, set[str]] = {name: set() for name in names.values()}
        for symbol in versions.iter_symbols():
            # 0 and 1 mean that there is no version; pyelftools gives them names.
            if (version := names.get(symbol["ndx"])) is not None:
                symbols[version].add(symbol.name)
        return symbols
