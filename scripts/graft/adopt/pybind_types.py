"""Convert the types and defaults of pybind11's signatures to those of schemas. Uses only the standard library.

pybind11 2 writes ``List[int]`` or ``list[int]``, and ``Optional[float]``; pybind11 3 writes
``collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]`` and ``typing.SupportsFloat | None``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection

from .brackets import split

_TYPES = {
    "torch.Tensor": "Tensor",
    "at::Tensor": "Tensor",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "complex": "Scalar",
    "Number": "Scalar",
    "torch.dtype": "ScalarType",
    "torch.device": "Device",
    "torch.layout": "Layout",
    "torch.memory_format": "MemoryFormat",
    "torch.Generator": "Generator",
    "torch.SymInt": "SymInt",
    "torch.SymFloat": "float",
    "torch.SymBool": "bool",
    "SupportsInt": "int",
    "SupportsIndex": "int",
    "SupportsFloat": "float",
    "SupportsComplex": "Scalar",
}

# The types of numbers, the widest last. A union of them becomes its widest member.
_NUMBERS = ("bool", "int", "SymInt", "float", "Scalar")

_ELEMENTS = ("Tensor", "Tensor?", "int", "SymInt", "float", "bool", "str", "Scalar")
_LISTS = re.compile(r"(?:list|List|Sequence|Iterable|ArrayRef)\[(.*)\]", re.DOTALL)
_TUPLE = re.compile(r"(?:tuple|Tuple|pair)\[(.*)\]", re.DOTALL)
_FIXED = re.compile(r"(.*)\[\d+\]")
_PREFIX = re.compile(r"^(?:typing\.|collections\.abc\.|builtins\.)")


class UnknownTypeError(Exception):
    """A type, or a default, that a schema cannot have."""


def schema_type(written: str, enums: Collection[str] = ()) -> str:
    """Return the schema's type for an argument; ``int`` for an enumeration.

    Raises:
        UnknownTypeError: schemas have no such type.
    """
    name = _PREFIX.sub("", written.strip())
    alternatives = _alternatives(name)
    if "None" in alternatives:
        return _optional(_union([each for each in alternatives if each != "None"], written, enums), written)
    if len(alternatives) > 1:
        return _union(alternatives, written, enums)
    if name in enums:
        return "int"
    if annotated := re.fullmatch(r"Annotated\[(.*)\]", name, re.DOTALL):
        return schema_type(split(annotated[1])[0], enums)
    if (element := _element(name)) is not None:
        return _list(schema_type(element, enums), written)
    if several := _TUPLE.fullmatch(name):
        return _fixed_list([schema_type(each, enums) for each in split(several[1])], written)
    if name not in _TYPES:
        raise UnknownTypeError(f"{written or 'an argument without a type'} is no type of schemas")
    return _TYPES[name]


def schema_results(written: str) -> list[str]:
    """Return the schema's types for the results.

    Raises:
        UnknownTypeError: schemas have no such type.
    """
    name = _PREFIX.sub("", written.strip())
    found = re.fullmatch(r"[tT]uple\[(.*)\]", name, re.DOTALL)
    if name in ("None", "tuple[()]", "Tuple[()]"):
        return []
    if not found or split(found[1])[-1:] == ["..."]:
        return [schema_type(name)]
    results = [schema_type(each) for each in split(found[1])]
    if len(results) == 1:
        raise UnknownTypeError("a tuple of one result is not expressible: return the result itself")
    return results


def schema_default(written: str, type_: str) -> str | None:
    """Return a default as a schema has it; None if a schema cannot have it."""
    if enumerator := re.fullmatch(r"<[\w.]+: (-?\d+)>", written):
        written = enumerator[1]
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return None
    return _literal(value, type_)


def is_tensor(type_: str) -> bool:
    """Return whether the dispatcher chooses a kernel by arguments of this type."""
    return type_.startswith("Tensor")


def is_number(written: str) -> bool:
    """Return whether an argument of this type is a number."""
    try:
        return schema_type(written) in ("int", "float", "Scalar")
    except UnknownTypeError:
        return False


def _literal(value: object, type_: str) -> str | None:
    """Return a Python value as a schema writes it; None if the type does not allow this value."""
    if value is None:
        return "None" if type_.endswith("?") else None
    type_ = type_.removesuffix("?")
    if type_.endswith("]") and isinstance(value, (list, tuple)):
        elements = [_literal(each, type_.partition("[")[0]) for each in value]
        return None if None in elements else f"[{', '.join(map(str, elements))}]"
    if type_ == "bool" and isinstance(value, int):
        return str(bool(value))
    if type_ == "str" and isinstance(value, str):
        return json.dumps(value) if value.isprintable() and value.isascii() else None
    if type_ == "float" and isinstance(value, (int, float)):
        return repr(float(value))
    if type_ in ("int", "SymInt") and isinstance(value, int):
        return str(int(value))
    if type_ == "Scalar" and isinstance(value, (int, float)):
        return repr(value)
    return None


def _alternatives(name: str) -> list[str]:
    """Return the members of a union, in any spelling."""
    if optional := re.fullmatch(r"Optional\[(.*)\]", name, re.DOTALL):
        return [*_alternatives(optional[1]), "None"]
    if union := re.fullmatch(r"Union\[(.*)\]", name, re.DOTALL):
        return split(union[1])
    return split(name, "|")


def _union(members: list[str], written: str, enums: Collection[str]) -> str:
    types = {schema_type(each, enums) for each in members}
    if len(types) == 1:
        return types.pop()
    if "SymInt" in types and types <= {"SymInt", "int"}:
        return "SymInt"
    if not types or not types <= set(_NUMBERS):
        raise UnknownTypeError(f"{written} is no type of schemas")
    return max(types, key=_NUMBERS.index)


def _optional(type_: str, written: str) -> str:
    if type_.endswith("?"):
        raise UnknownTypeError(f"{written} is no type of schemas")
    return f"{type_}?"


def _element(name: str) -> str | None:
    """Return the type of a list's elements; None if the type is not a list."""
    if name in ("Tuple[int, ...]", "tuple[int, ...]"):
        return "int"
    found = _LISTS.fullmatch(name)
    if not found:
        return None
    fixed = _FIXED.fullmatch(found[1])  # pybind11 before 2.12: List[bool[3]]
    return fixed[1] if fixed else found[1]


def _fixed_list(elements: list[str], written: str) -> str:
    """Return the type of a list for a tuple whose elements have one type: ``int[2]`` for a pair."""
    if len({*elements}) != 1 or elements[0] not in ("int", "SymInt", "float", "bool"):
        raise UnknownTypeError(f"{written}: schemas have no tuple of these")
    return f"{elements[0]}[{len(elements)}]"


def _list(element: str, written: str) -> str:
    if element not in _ELEMENTS:
        raise UnknownTypeError(f"{written}: schemas have no list of {element}")
    return f"{element}[]"
