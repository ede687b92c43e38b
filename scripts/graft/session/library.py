"""Call the library that all loads of a process share, `compile/templates/loads.cpp`, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.errors import BuildError, RefusedError, UsageError
from ..inputs.spelling import python_names


class Loads:
    """The loads of this process, in C++.

    Args:
        path: the library. All loads use the first one that the process opens.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.PyDLL(str(path))
        except OSError as error:
            raise RefusedError(
                f"{path}: it cannot be opened: {error}",
                cause="the file system of GRAFT_HOME may be mounted with noexec",
                todo="set GRAFT_HOME to a folder on another file system, and restart",
            ) from error
        for name in ("graft_load", "graft_operators", "graft_unload"):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.graft_retired.restype = ctypes.c_size_t
        self._library.graft_bind_load.argtypes = [*[ctypes.c_char_p] * 3, ctypes.py_object]
        self._library.graft_bind_load.restype = ctypes.c_bool

    @property
    def retired(self) -> int:
        """The number of operator definitions retired so far, because a schema changed or a load was unloaded. A library
        that was opened before the last one was retired may have handles to it.
        """
        return int(self._library.graft_retired())

    def load(self, name: str, library: Path, taken: Iterable[str] = ()) -> None:
        """Replace the registrations of the load ``name`` by those of ``library``, but for the operators ``taken``; all
        or nothing.

        Raises:
            BuildError: a static initializer threw an exception, or the dispatcher refused something.
        """
        given = (name, str(library), _lines(taken))
        self._check(self._library.graft_load(*map(str.encode, given)), library)

    def operators(self, name: str) -> list[str]:
        """Return the operators of a load, including those that its sources define with ``m.def``."""
        text: bytes = self._library.graft_operators(name.encode())
        return text.decode().split()

    def unload(self, name: str) -> None:
        """Remove the registrations of the load ``name``."""
        self._check(self._library.graft_unload(name.encode()), self.path)

    def bind(self, name: str, library: Path | None, torch_c: Any, taken: Iterable[str] = ()) -> None:
        """Replace the Python bindings of the load ``name`` by those of ``library``, but for the operators ``taken``.
        None removes them.
        """
        given = (name, str(library or ""), _lines(python_names(taken)))
        self._library.graft_bind_load(*map(str.encode, given), torch_c)

    def document(self, name: str) -> None:
        """Restore torch's docstrings of functions that the load ``name`` replaced, where it has none of its own."""
        self._library.graft_document_load(name.encode())

    @staticmethod
    def _check(error: bytes | None, library: Path) -> None:
        text = error.decode(errors="replace").strip() if error is not None else ""
        if "is there already, with another schema" in text:
            raise UsageError(
                text,
                cause="`make develop` or a thin wheel added it",
                todo="build that again with the new schema and restart, or give yours another name",
            )
        if error is not None:
            raise BuildError(
                text,
                cause="a static initializer of the sources threw it, or the dispatcher refused what they register",
                todo="correct the sources; this process has what it had before",
            )


def _lines(names: Iterable[str]) -> str:
    return "".join(f"{each}\n" for each in sorted({*names}))
