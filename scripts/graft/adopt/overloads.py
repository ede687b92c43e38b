"""Find overloads that accept the same call: torch.ops and the functions of torch may choose different ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, groupby

from .schema import Schema, Value

# The Python types that arguments of each schema type accept.
_TAKEN = {
    "Tensor": {"tensor"},
    "Scalar": {"int", "float", "bool", "complex"},
    "float": {"int", "float"},
    "int": {"int"},
    "SymInt": {"int"},
    "bool": {"bool"},
    "str": {"str"},
    "ScalarType": {"dtype"},
    "Device": {"str", "device"},
}


def ambiguous(overloads: Sequence[tuple[int, Schema]]) -> list[tuple[str, str, str]]:
    """Return the pairs of overloads that accept the same call: their name, and both in the order of torch.ops.

    Args:
        overloads: all schemas, each with its position among the overloads of its name.
    """
    found = []
    by_name = sorted(overloads, key=lambda each: (each[1].name, each[0]))
    for name, group in groupby(by_name, key=lambda each: each[1].name):
        for (_, first), (_, second) in combinations(group, 2):
            if not first.written and not second.written and _share_a_call(first, second):
                found.append((name, first.overload, second.overload))
    return found


def _share_a_call(first: Schema, second: Schema) -> bool:
    """Return whether a list of positional arguments exists that both accept."""
    one, other = first.positional, second.positional
    longer = one if len(one) > len(other) else other
    shared = min(len(one), len(other))
    rest = (*longer[shared:], *first.keyword_only, *second.keyword_only)
    return all(map(_share_a_value, one, other)) and all(each.default for each in rest)


def _share_a_value(one: Value, other: Value) -> bool:
    if bool(one.lists) != bool(other.lists):
        return False
    return bool(_TAKEN.get(one.base, {one.base}) & _TAKEN.get(other.base, {other.base}))
