"""An index of the base's symbols, sorted once for each library: exported names, and addresses of hidden symbols.

The official libraries are not stripped. Their symbol tables take half a gigabyte, and a link needs a few hundred
entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.files import write_atomically
from ..core.layout import REPOSITORY
from ..core.lock import file_lock
from .elf import ElfFile, HiddenSymbol

# The indexes by build-id, shared by all bases.
SYMBOLS = REPOSITORY / "build/symbols"

# Increase this when the format changes.
_FORMAT = 1

_ENTRY = np.dtype([("hash", "<u8"), ("value", "<u8"), ("kind", "u1")])
_FUNCTION, _DATA, _EXPORTED = 1, 2, 4


class SymbolIndex:
    """The symbols that one library defines, looked up by name.

    Args:
        path: the library.
        build_id: its GNU build-id; empty if it has none.
        entries: sorted by the hash of the name; a name defined at several addresses has several entries.
    """

    def __init__(self, path: Path, build_id: str, entries: npt.NDArray[Any]) -> None:
        self.path = path
        self.build_id = build_id
        self._entries = entries

    def _rows(self, name: str) -> npt.NDArray[Any]:
        wanted = np.uint64(_hash(name.encode()))
        low, high = np.searchsorted(self._entries["hash"], [wanted, wanted + np.uint64(1)])
        return self._entries[low:high]

    def exported_among(self, names: Iterable[str]) -> set[str]:
        """Return the exported ones of ``names``."""
        return {name for name in names if any(row["kind"] & _EXPORTED for row in self._rows(name))}

    def find_defined(self, names: Iterable[str]) -> dict[str, list[HiddenSymbol]]:
        """Look up ``names``, exported or hidden. An ambiguous name has several entries."""
        found = {}
        for name in names:
            rows = [row for row in self._rows(name) if row["kind"] & (_FUNCTION | _DATA)]
            if rows:
                found[name] = [HiddenSymbol(name, int(r["value"]), bool(r["kind"] & _FUNCTION)) for r in rows]
        return found


def symbol_index(path: Path, folder: Path = SYMBOLS) -> SymbolIndex:
    """Return the index of the library ``path``. It is kept in ``folder`` under the build-id."""
    library = ElfFile(path)
    if not library.build_id:
        return SymbolIndex(path, "", _entries(library))
    kept = folder / f"{path.name}-{library.build_id}-{_FORMAT}.npy"
    # Several links may need it at once; it takes seconds to make. What they print is taken for an error of theirs.
    with file_lock(kept.with_suffix(".lock"), busy=""):
        if not kept.is_file():
            content = BytesIO()
            np.save(content, _entries(library))
            write_atomically(kept, content.getvalue())
    return SymbolIndex(path, library.build_id, np.load(kept, mmap_mode="r"))


def _entries(library: ElfFile) -> npt.NDArray[Any]:
    exported = {_hash(name) for name in library.exported_names()}
    rows: set[tuple[int, int, int]] = set()
    for name, value, is_function in library.definitions():
        digest = _hash(name)
        rows.add((digest, value, (_FUNCTION if is_function else _DATA) | (_EXPORTED if digest in exported else 0)))
    known = {row[0] for row in rows}
    # Symbols that are neither functions nor data, like thread-local variables, count only as exported.
    rows |= {(digest, 0, _EXPORTED) for digest in exported - known}
    return np.array(sorted(rows), dtype=_ENTRY)


def _hash(name: bytes) -> int:
    # In a million names, the chance that two share these 8 bytes is one in ten million.
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")
