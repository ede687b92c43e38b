"""What ELF files define and need: exported, hidden and undefined symbols, build-ids, symbol versions."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import NoteSection, Section

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# numpy is imported late: only symbol tables need it, and it takes as long to import as everything else in a build that
# has little to do.

_WEAK = 2
_LOCAL = 0
_OBJECT, _FUNCTION, _IFUNC = 1, 2, 10
_INTERNAL, _HIDDEN = 1, 2
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1

# pyelftools' attributes for the strings of the dynamic section.
_DYNAMIC_TEXTS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}


@cache
def _symbol_type() -> np.dtype[Any]:
    """Return the layout of Elf64_Sym (System V ABI, "Symbol Table")."""
    import numpy as np

    kinds = {"name": "<u4", "info": "u1", "other": "u1", "section": "<u2", "value": "<u8", "size": "<u8"}
    return np.dtype(list(kinds.items()))


@dataclass(frozen=True)
class HiddenSymbol:
    """A symbol that a library defines but does not export.

    Args:
        name: the mangled name.
        value: its address in the file, relative to the load address.
        is_function: whether it is code.
    """

    name: str
    value: int
    is_function: bool


class ElfFile:
    """An ELF64 file, opened for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._elf = ELFFile(self._data)

    def _section(self, name: str) -> Section | None:
        section: Section | None = self._elf.get_section_by_name(name)
        return section

    @cached_property
    def build_id(self) -> str:
        """The GNU build-id as hexadecimal digits; empty if there is none."""
        section = self._section(".note.gnu.build-id")
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"])
        return ""

    @property
    def has_symbol_table(self) -> bool:
        """Whether it lists its hidden symbols, that is, it is not stripped."""
        return self._section(".symtab") is not None

    def dynamic(self) -> dict[str, list[str]]:
        """The strings of the dynamic section by tag: ``{"DT_NEEDED": ["libc.so.6", ...], "DT_RPATH": [...]}``."""
        section = self._section(".dynamic")
        found: dict[str, list[str]] = {}
        for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
            for kind, attribute in _DYNAMIC_TEXTS.items():
                if tag.entry.d_tag == kind:
                    found.setdefault(kind, []).append(getattr(tag, attribute))
        return found

    @cached_property
    def _static(self) -> _SymbolTable:
        return self._table(".symtab")

    @cached_property
    def _dynamic(self) -> _SymbolTable:
        return self._table(".dynsym")

    def _table(self, name: str) -> _SymbolTable:
        import numpy as np

        section, kind = self._section(name), _symbol_type()
        if section is None:
            return _SymbolTable(np.empty(0, kind), b"\0")
        strings: Any = self._elf.get_section(section["sh_link"])
        symbols = np.frombuffer(
            self._data, kind, count=section["sh_size"] // kind.itemsize, offset=section["sh_offset"]
        )
        start = strings["sh_offset"]
        return _SymbolTable(symbols, memoryview(self._data)[start : start + strings["sh_size"]])

    def exported(self) -> frozenset[str]:
        """Return the exported names."""
        table = self._dynamic
        rows = table.symbols[table.symbols["section"] != _UNDEFINED]
        return frozenset(table.name(row) for row in rows["name"])

    def defined(self, *, weak: bool = True, hidden: bool = True) -> frozenset[str]:
        """Return the global names that an object file defines.

        Args:
            weak: include weak symbols, for example those of inline functions.
            hidden: include hidden symbols.
        """
        import numpy as np

        symbols = self._static.symbols
        bindings = symbols["info"] >> 4
        is_meant = (bindings != _LOCAL) & (weak | (bindings != _WEAK))
        is_meant &= hidden | ~np.isin(symbols["other"] & 3, (_INTERNAL, _HIDDEN))
        rows = symbols[(symbols["section"] != _UNDEFINED) & is_meant]
        return frozenset(self._static.name(row) for row in rows["name"])

    def undefined(self) -> frozenset[str]:
        """Return the undefined names of an object file, without weak references, which may stay undefined."""
        symbols = self._static.symbols
        bindings = symbols["info"] >> 4
        rows = symbols[(symbols["section"] == _UNDEFINED) & (bindings != _LOCAL) & (bindings != _WEAK)]
        return frozenset(self._static.name(row) for row in rows["name"] if row)

    def exported_names(self) -> Iterator[bytes]:
        """Return the exported names as bytes."""
        table = self._dynamic
        return (table.raw_name(row) for row in table.symbols["name"][table.symbols["section"] != _UNDEFINED])

    def definitions(self) -> Iterator[tuple[bytes, int, bool]]:
        """Yield each function and variable of the full symbol table: its name, its address, and whether it is a
        function.
        """
        import numpy as np

        table = self._static
        symbols = table.symbols
        kinds = symbols["info"] & 15
        is_defined = (symbols["section"] != _UNDEFINED) & (symbols["section"] != _ABSOLUTE)
        rows = symbols[is_defined & np.isin(kinds, (_FUNCTION, _OBJECT, _IFUNC))]
        for name, value, info in zip(rows["name"].tolist(), rows["value"].tolist(), rows["info"].tolist(), strict=True):
            yield table.raw_name(name), value, info & 15 == _FUNCTION

    def needed_versions(self) -> dict[str, set[str]]:
        """Return the versioned symbols that the file needs, by version: ``{"GLIBC_2.29": {"exp", "log2"}, ...}``."""
        needed, versions = self._section(".gnu.version_r"), self._section(".gnu.version")
        if not isinstance(needed, GNUVerNeedSection) or not isinstance(versions, GNUVerSymSection):
            return {}
        names = {entry["vna_other"]: entry.name for _, entries in needed.iter_versions() for entry in entries}
        symbols: dict[str, set[str]] = {name: set() for name in names.values()}
        for symbol in versions.iter_symbols():
            # 0 and 1 mean that there is no version; pyelftools gives them names.
            if (version := names.get(symbol["ndx"])) is not None:
                symbols[version].add(symbol.name)
        return symbols


class _SymbolTable:
    """A symbol table and its strings."""

    def __init__(self, symbols: npt.NDArray[Any], strings: memoryview | bytes) -> None:
        self.symbols = symbols
        self._strings = bytes(strings)

    def raw_name(self, offset: int) -> bytes:
        return self._strings[offset : self._strings.index(b"\0", offset)]

    def name(self, offset: int) -> str:
        return self.raw_name(offset).decode()
