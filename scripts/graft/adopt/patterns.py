"""Match operators with the author's patterns: ``*_norm`` of ``fnmatch``. Uses only the standard library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

T = TypeVar("T")


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns matches an operator's name, which has no namespace."""
    return any(fnmatchcase(name, each) for each in patterns)


def of_name(values: Mapping[str, T], name: str) -> T | None:
    """Return the value of an operator's name, or of the first pattern that matches it; None if none does."""
    if name in values:
        return values[name]
    return next((value for pattern, value in values.items() if fnmatchcase(name, pattern)), None)


def unused(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the patterns that match none of the names."""
    names = [*names]
    return [each for each in patterns if not any(fnmatchcase(name, each) for name in names)]
