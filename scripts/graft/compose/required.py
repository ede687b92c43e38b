"""Check that PyTorch's modules define the names that the texts of ``appended/`` use.

Those texts extend upstream's functions and lists by name. If a release no longer has one, the build reports it, rather
than a user's ``import torch``.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import symtable
from collections.abc import Mapping
from pathlib import Path
from types import CodeType

from ..core.errors import PinError
from ..core.files import write_atomically
from ..inputs.patches import ADDED
from ..inputs.snapshot import hash_of_builder
from .files import our_files

_GIVEN = {*dir(builtins), "__name__", "__file__", "__annotations__"}

# Comprehensions, which Python 3.12 and later have no code objects of, other than generator expressions.
_RUN_NOW = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def require_names(tree: Path, texts: Mapping[str, Path] | None = None, note: Path | None = None) -> None:
    """Check that the base defines each name that a text uses and does not define itself.

    Args:
        tree: the unpacked base.
        texts: by the file that they are appended to; None for those that every wheel gets.
        note: a file next to the base that records a successful check; None to check again.

    Raises:
        PinError: lists every module and name that is missing.
    """
    stamp = hash_of_builder()
    if note and note.is_file() and note.read_text(encoding="utf-8") == stamp:
        return
    if (tree / ADDED).is_file():
        _require_our_texts(tree)
        return
    faults: list[str] = []
    for name, path in (our_files() if texts is None else texts).items():
        upstream = (tree / name).read_text(encoding="utf-8") if (tree / name).is_file() else ""
        missing = _required(path.read_text(encoding="utf-8")) - _defined(symtable.symtable(upstream, name, "exec"))
        faults += [f"{name}: it has no `{each}`, which {path} needs" for each in sorted(missing)]
    if faults:
        raise PinError(
            "\n".join(faults),
            cause="this PyTorch differs from the supported ones",
            todo="use names that this PyTorch has in these texts, or set PIN to another release",
        )
    if note:
        write_atomically(note, stamp)


def _require_our_texts(tree: Path) -> None:
    """Check that a base which was built from the fork has the texts of this builder, which are not appended again."""
    for name, path in our_files().items():
        if not (tree / name).is_file() or path.read_text(encoding="utf-8") not in (tree / name).read_text(
            encoding="utf-8"
        ):
            raise PinError(
                f"{name}: this torch was built from the fork by another version of Graft",
                todo="build it again with `make patch-and-build BUILD=source`; compiled files are kept",
            )


def _defined(scope: symtable.SymbolTable) -> set[str]:
    """Return the names that a module binds at its top level."""
    return {each.get_name() for each in scope.get_symbols() if each.is_assigned() or each.is_imported()}


def _required(text: str) -> set[str]:
    """Return the names that a text needs from the module that it is appended to.

    Code that runs at import needs each name that the text has not bound before; functions run when all are bound.
    """
    required: set[str] = set()
    bound: set[str] = set()
    later: set[str] = set()
    _read(compile(text, "text", "exec", dont_inherit=True), required, bound, later)
    return (required | later - bound) - _GIVEN


def _read(code: CodeType, required: set[str], bound: set[str], later: set[str]) -> None:
    """Add to the sets what code that runs now needs and binds, and what the functions in it need later."""
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if name in ("STORE_NAME", "STORE_GLOBAL"):
            bound.add(value)
        elif name.startswith("LOAD_") and name.endswith(("_NAME", "_GLOBAL")) and value not in bound:
            required.add(value)
        elif isinstance(value, CodeType):
            if value.co_name in _RUN_NOW or not value.co_flags & inspect.CO_OPTIMIZED:
                _read(value, required, set(bound), later)
            else:
                _read(value, later, set(), later)
