"""The operators and functions that formulas can use."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..cpp.functions import Definition, canonical
from ..cpp.sources import Source
from .base import BaseOperators
from .schemas import Function


@dataclass
class Surroundings:
    """The operators and functions that a formula can use.

    Args:
        base: the base.
        functions: the folders' operators.
        sources: the folders' C++ sources.
        unknown: the folders' operators whose entries are invalid.
        declared: the functions for formulas that the folders declare.
    """

    base: BaseOperators
    functions: list[Function]
    sources: list[Source]
    unknown: set[str]
    declared: Sequence[Definition] = ()

    @cached_property
    def helpers(self) -> dict[str, list[Definition]]:
        """The functions for formulas, PyTorch's and the folders', by name."""
        declared: dict[str, list[Definition]] = {}
        for each in self.declared:
            declared.setdefault(each.name, []).append(each)
        return self.base.formula_functions | declared

    @cached_property
    def own(self) -> dict[str, list[Function]]:
        """The folders' operators, by name without overload."""
        found: dict[str, list[Function]] = {}
        for f in self.functions:
            for name in {str(each.name) for each in (f.schema.name, *f.native.autogen)}:
                found.setdefault(name, []).append(f)
        return found

    def values_of(self, name: str) -> set[int | None]:
        """Return how many values the functions called ``name`` return; includes None if that is unknown."""
        root = name.removesuffix("_symint")
        functions = [*self.base.functions_named(root), *(f.native for f in self.own.get(root, []))]
        written = self.helpers.get(name, [])
        return {len(f.func.returns) for f in functions} | {_values(d.returns) for d in written}

    @cached_property
    def invalid(self) -> set[str]:
        """The folders' operators whose entries are invalid, without overload."""
        return {name.partition(".")[0] for name in self.unknown}

    def is_function(self, name: str) -> bool:
        """Return whether a formula can call a function of this name, as far as these operators and functions show."""
        root = re.sub(r"_symint|_outf?$", "", name)
        is_operator = root in self.own or root in self.invalid or bool(self.base.functions_named(root))
        return is_operator or name in self.helpers

    def defines(self, name: str) -> Source | None:
        """Return the source that defines a function called ``name``, which formulas cannot call."""
        return next((s for s in self.sources if any(d.name == name for d in s.definitions)), None)


def is_of_libc(name: str) -> bool:
    """Return whether the C library has a function of this name."""
    return hasattr(ctypes.CDLL(None), name)


def _values(returns: str) -> int | None:
    """Return how many values a function with this return type returns; None if that is unknown."""
    kept = canonical(returns)
    if kept.startswith("tuple<"):
        return len(re.findall(r",(?![^<]*>.)", kept)) + 1
    return 1 if kept in ("Tensor", "Tensor&", "const Tensor&") else None
