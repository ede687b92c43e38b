"""The library that all loads of a process share: `compile/templates/loads.cpp`. ctypes calls it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from ..core.errors import BuildError, RefusedError, UsageError


class Loads:
    """The loads of this process, in C++.

    Args:
        path: the library. The first that a process opens is the one of all.
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
        self._library.graft_bind_load.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.py_object]
        self._library.graft_bind_load.restype = ctypes.c_bool

    @property
    def retired(self) -> int:
        """The number of definitions that were retired so far, since their schemas changed or their load was unloaded. A
        library that was opened before the last one may have handles to it.
        """
        return int(self._library.graft_retired())

    def load(self, name: str, library: Path) -> None:
        """Make what ``library`` registers that of the load ``name``, in place of its last ones; all or nothing.

        Raises:
            BuildError: a static initializer threw an exception, or the dispatcher refused something.
        """
        self._check(self._library.graft_load(name.encode(), str(library).encode()), library)

    def operators(self, name: str) -> list[str]:
        """Return the operators of a load, also those that its sources define themselves."""
        text: bytes = self._library.graft_operators(name.encode())
        return text.decode().split()

    def unload(self, name: str) -> None:
        """Take back what the load ``name`` registered."""
        self._check(self._library.graft_unload(name.encode()), self.path)

    def bind(self, name: str, library: Path | None, torch_c: Any) -> None:
        """Make the bindings of ``library`` those of the load ``name``, in place of its last ones; without one, take
        those back.
        """
        self._library.graft_bind_load(name.encode(), str(library or "").encode(), torch_c)

    def document(self, name: str) -> None:
        """Give the functions that the load ``name`` has bound the docstrings of before all loads, where it has none."""
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
