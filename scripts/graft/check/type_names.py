"""Say how a schema writes the arguments and results that a user wrote with types of C++ or of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..codegen.torchgen import BaseTy

_KNOWN = {kind.name for kind in BaseTy}

# The words for a type in C++ and in Python, without namespaces, by the schema's.
_WORDS = {
    "int": "int64_t int32_t int16_t int8_t uint64_t uint32_t uint16_t uint8_t size_t ssize_t long short unsigned "
    "integer Int unsigned_int unsigned_long long_long long_int unsigned_long_long ptrdiff_t",
    "float": "double half Float Double",
    "bool": "boolean Bool Boolean",
    "str": "string string_view char String",
    "Scalar": "Number number complex",
    "Tensor": "tensor Variable TensorBase Parameter",
    "ScalarType": "dtype",
    "Device": "device",
    "Layout": "layout",
    "MemoryFormat": "memory_format",
    "SymInt": "symint",
    "int[]": "IntArrayRef Size",
    "SymInt[]": "SymIntArrayRef",
    "Tensor[]": "TensorList ITensorListRef variable_list",
    "int[]?": "OptionalIntArrayRef",
    "SymInt[]?": "OptionalSymIntArrayRef",
}
_OF_WORD = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_OPTIONAL = re.compile(r"(?i:optional)[\[<](.+)[\]>]|(.+?) ?\| ?None|None ?\| ?(.+)")
_LIST = re.compile(
    r"(?:[Ll]ist|Sequence|Iterable|Collection|[Tt]uple|vector|(?:Array|IList)Ref)[\[<]([^,]+)(?:, ?\.{3})?[\]>]"
)
_ARRAY = re.compile(r"(?:array)[\[<]([^,]+), ?(\d+)[\]>]")
_TUPLE = re.compile(r"(?:[Tt]uple|pair)[\[<](.+)[\]>]")
# An alias annotation, and what may follow a type.
_SUFFIXED = re.compile(r"(.+?)((?:\([^()]+\))?(?:\?|\[\d*\])*)")
_ARGUMENT = re.compile(r"(?P<type>.+?[\s&*>\]?)])(?P<name>\w+)(?P<default>=.+)?")
_OF_PYTHON = re.compile(r"(?P<name>\w+) ?:(?!:) ?(?P<type>.+?)(?P<default>=.+)?")


def of_schema(written: str) -> str:
    """Return the schema's type for a type of C++ or Python; empty if there is none."""
    text = re.sub(r"\b(?:const|volatile)\b|[&*]|\b(?:std|at|c10|torch|typing|np|numpy|nn)(?:::|\.)", " ", written)
    text = re.sub(r"\s*([\[\]<>])\s*", r"\1", " ".join(text.split()))
    if text in _KNOWN:
        return text
    if word := _OF_WORD.get(text.replace(" ", "_")):
        return word
    for pattern, suffix in ((_OPTIONAL, "?"), (_LIST, "[]"), (_ARRAY, "[{1}]")):
        if found := pattern.fullmatch(text):
            inner, *size = filter(None, found.groups())
            kind = of_schema(inner)
            return kind and kind + suffix.format("", *size)
    suffixed = _SUFFIXED.fullmatch(text)
    return f"{kind}{suffixed[2]}" if suffixed and suffixed[2] and (kind := of_schema(suffixed[1])) else ""


def foreign(schema: str) -> Iterator[tuple[str, str, str]]:
    """Yield each argument and result that is written as in C++ or Python: what it is, its text, and the schema's."""
    arguments, _, result = schema.partition("(")[2].rpartition(" -> ")
    found = [("argument", each, _argument(each)) for each in _split(arguments.removesuffix(")"))]
    yield from (each for each in (*found, ("result", result, _result(result))) if each[2] not in ("", each[1]))


def _argument(written: str) -> str:
    found = _OF_PYTHON.fullmatch(written) or _ARGUMENT.fullmatch(written)
    kind = of_schema(found["type"]) if found else ""
    return f"{kind} {found['name']}{found['default'] or ''}" if found and kind else ""


def _result(written: str) -> str:
    if written in ("void", "None"):
        return "()"
    found = _TUPLE.fullmatch(re.sub(r"^(?:std::|typing\.)", "", written)) or re.fullmatch(r"\((.+)\)", written)
    if not found:
        return of_schema(written)
    kinds = [of_schema(each) for each in _split(found[1])]
    return f"({', '.join(kinds)})" if all(kinds) else ""


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas outside of brackets."""
    depth, part = 0, ""
    for character in text:
        depth += (character in "([<") - (character in ")]>")
        if character == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += character
    if part.strip():
        yield part.strip()
