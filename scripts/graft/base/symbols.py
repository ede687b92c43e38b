"""The symbols of ELF files, and an index of the symbols of the base's libraries.

The official libraries are not stripped. Their symbol tables take half a gigabyte, and a link needs a few hundred
entries. numpy reads them: pyelftools takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.elf import ElfFile
from ..core.files import file_lock, write_atomically
from ..core.layout import store

# Increase this when the format of indexes changes.
_FORMAT = 1

# Elf64_Sym, and the values of its fields (System V ABI, "Symbol Table"; GNU for IFUNC).
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_OBJECT, _FUNCTION, _IFUNC = 1, 2, 10
_INTERNAL, _HIDDEN = 1, 2
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1

_ENTRY = np.dtype([("hash", "<u8"), ("value", "<u8"), ("kind", "u1")])

# The kinds of a symbol in the index, as bits. An exported function has two.
FUNCTION, DATA, EXPORTED = 1, 2, 4


# A symbol table and its strings.
_Table = tuple[npt.NDArray[Any], bytes]


class SymbolFile(ElfFile):
    """An object file or a library."""

    @cached_property
    def _dynamic(self) -> _Table:
        return self._table(".dynsym", ".dynstr")

    @cached_property
    def _static(self) -> _Table:
        return self._table(".symtab", ".strtab")

    def _table(self, name: str, name_of_strings: str) -> _Table:
        section, strings = self.section(name), self.section(name_of_strings)
        if not section or not strings:
            return np.empty(0, _SYMBOL), b""
        count, start = section["sh_size"] // _SYMBOL.itemsize, strings["sh_offset"]
        symbols = np.frombuffer(self.data, _SYMBOL, count=count, offset=section["sh_offset"])
        return symbols, self.data[start : start + strings["sh_size"]]

    def exported(self) -> frozenset[str]:
        """Return the exported names of a library."""
        symbols, _ = self._dynamic
        return frozenset(_names(self._dynamic, symbols["section"] != _UNDEFINED))

    def defined(self, *, weak: bool = True, hidden: bool = True) -> frozenset[str]:
        """Return the names that an object file defines for others.

        Args:
            weak: include symbols that several files may define, for example those of inline functions.
            hidden: include hidden symbols.
        """
        symbols, _ = self._static
        binding, visibility = symbols["info"] >> 4, symbols["other"] & 3
        is_meant = (binding != _LOCAL) if weak else (binding == _GLOBAL)
        is_meant &= hidden | ~np.isin(visibility, (_INTERNAL, _HIDDEN))
        return frozenset(_names(self._static, is_meant & (symbols["section"] != _UNDEFINED)))

    def defined_functions(self) -> frozenset[str]:
        """Return the functions that an object file defines for others with strong symbols."""
        symbols, _ = self._static
        is_meant = (symbols["info"] >> 4 == _GLOBAL) & (symbols["info"] & 15 == _FUNCTION)
        return frozenset(_names(self._static, is_meant & (symbols["section"] != _UNDEFINED)))

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the variables that an object file defines for others, in bytes."""
        symbols, _ = self._static
        is_meant = (symbols["info"] >> 4 == _GLOBAL) & (symbols["info"] & 15 == _OBJECT)
        is_meant &= symbols["section"] != _UNDEFINED
        return dict(zip(_names(self._static, is_meant), symbols["size"][is_meant].tolist(), strict=True))

    def undefined(self) -> frozenset[str]:
        """Return the undefined names of an object file, without weak references, which may stay undefined, and without
        the versions of ``.symver``, which only the linker looks at.
        """
        symbols, _ = self._static
        is_meant = ~np.isin(symbols["info"] >> 4, (_LOCAL, _WEAK)) & (symbols["name"] != 0)
        names = _names(self._static, is_meant & (symbols["section"] == _UNDEFINED))
        return frozenset(name.partition("@")[0] for name in names)

    def functions(self) -> _Table:
        """Return the functions that a library defines, and the strings of their names."""
        symbols, strings = self._static
        is_meant = (symbols["info"] & 15 == _FUNCTION) & (symbols["section"] != _UNDEFINED)
        return symbols[is_meant], strings

    def dynamic_names(self, numbers: npt.NDArray[Any]) -> Iterator[str]:
        """Yield the names of the symbols with these numbers in the dynamic table of a library."""
        symbols, strings = self._dynamic
        return _names((symbols[numbers], strings), np.ones(len(numbers), bool))

    def definitions(self) -> Iterator[tuple[str, int, bool]]:
        """Yield the name and address of each function and variable of a library, and whether it is a function."""
        symbols, _ = self._static
        kinds = symbols["info"] & 15
        is_meant = ~np.isin(symbols["section"], (_UNDEFINED, _ABSOLUTE)) & np.isin(kinds, (_FUNCTION, _OBJECT, _IFUNC))
        is_function = (kinds == _FUNCTION)[is_meant].tolist()
        return zip(_names(self._static, is_meant), symbols["value"][is_meant].tolist(), is_function, strict=True)


def _names(table: _Table, is_meant: npt.NDArray[Any]) -> Iterator[str]:
    """Yield the names of the symbols that a mask selects."""
    symbols, strings = table
    for start in symbols["name"][is_meant].tolist():
        yield strings[start : strings.index(b"\0", start)].decode()


class SymbolIndex:
    """An index of the symbols that one library defines, by name. Its file is named after the library's build-id.

    Args:
        path: the library.
        folder: the folder of the indexes; by default the store's, which all bases share.
    """

    def __init__(self, path: Path, folder: Path | None = None) -> None:
        library = SymbolFile(path)
        self.name, self.build_id = path.name, library.build_id
        kept = (folder or store() / "symbols") / f"{self.name}-{self.build_id}-{_FORMAT}.table"
        # Several links may need it at once, and it takes seconds to make. Print nothing: a link's output is shown as
        # its error.
        with file_lock(kept.with_suffix(".lock"), busy=""):
            if not kept.is_file():
                write_atomically(kept, _entries(library).tobytes())
        # Sorted by the hash of the name; a name defined at several addresses has several entries. np.load would parse
        # Python, which two threads of Python 3.11 cannot do at once.
        self._entries: npt.NDArray[Any] = np.memmap(kept, _ENTRY, "r")

    def find(self, names: Iterable[str], kind: int) -> dict[str, list[int]]:
        """Return the addresses of the ``names`` that are of a ``kind``. An ambiguous name has several."""
        found: dict[str, list[int]] = {}
        for name in names:
            wanted = np.uint64(_hash(name))
            low, high = np.searchsorted(self._entries["hash"], [wanted, wanted + np.uint64(1)])
            if addresses := [int(row["value"]) for row in self._entries[low:high] if row["kind"] & kind]:
                found[name] = addresses
        return found


def keep_indexes(libraries: Iterable[Path], folder: Path | None = None) -> None:
    """Create missing indexes of libraries, in a second or two each. Ignore errors: the link that needs one reports
    them.
    """
    for path in libraries:
        with suppress(Exception):
            SymbolIndex(path, folder)


def _entries(library: SymbolFile) -> npt.NDArray[Any]:
    exported = {_hash(name) for name in library.exported()}
    rows: set[tuple[int, int, int]] = set()
    for name, value, is_function in library.definitions():
        digest = _hash(name)
        rows.add((digest, value, (FUNCTION if is_function else DATA) | (EXPORTED if digest in exported else 0)))
    # Symbols that are neither functions nor data, like thread-local variables, count only as exported.
    rows |= {(digest, 0, EXPORTED) for digest in exported - {row[0] for row in rows}}
    return np.array(sorted(rows), dtype=_ENTRY)


def _hash(name: str) -> int:
    # In a million names, the chance that two share these 8 bytes is one in ten million.
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
