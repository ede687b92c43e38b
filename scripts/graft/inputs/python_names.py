"""Find the names that a Python module defines, and the names that a text appended to it needs. No code runs."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import symtable
from types import CodeType

_GIVEN = {*dir(builtins), "__name__", "__file__", "__annotations__"}

# Comprehensions. Since Python 3.12 only generator expressions have code objects of their own.
_RUN_NOW = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def names_defined(text: str) -> set[str]:
    """Return the names that a module binds at its top level."""
    symbols = symtable.symtable(text, "text", "exec").get_symbols()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}


def names_needed(text: str) -> set[str]:
    """Return the names that a text needs from the module that it is appended to.

    Code that runs at import needs each name that the text has not bound before; functions run when all are bound.
    """
    required: set[str] = set()
    bound: set[str] = set()
    later: set[str] = set()
    _read(compile(text, "text", "exec", dont_inherit=True), required, bound, later)
    return (required | later - bound) - _GIVEN


def names_needed_at_import(code: str | ast.Module) -> set[str]:
    """Return the names that a module's code needs when it is imported, and does not define; builtins are among them."""
    required: set[str] = set()
    _read(compile(code, "text", "exec", dont_inherit=True), required, set(), set())
    return required


def _read(code: CodeType, required: set[str], bound: set[str], later: set[str]) -> None:
    """Add to the sets the names that code needs and binds when it runs, and those that functions in it need later."""
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
