"""Parse the signatures that pybind11 writes into the ``__doc__`` of a function. Uses only the standard library: it runs
with the Python of the environment that has the extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .brackets import closing, split

# The text before the overloads, and the number before each of them.
_OVERLOADED = "\nOverloaded function.\n\n"
_NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)


@dataclass(frozen=True)
class Argument:
    """An argument as pybind11 writes it.

    Args:
        name: its name, ``arg0`` where the author gave none.
        type: its type; empty if there is none, as for ``*args``.
        default: the text of its default; None if it has none.
        keyword_only: whether it is keyword-only.
    """

    name: str
    type: str
    default: str | None = None
    keyword_only: bool = False


@dataclass(frozen=True)
class Signature:
    """A function, or one of its overloads."""

    name: str
    arguments: tuple[Argument, ...]
    result: str
    doc: str = ""


def signatures(name: str, doc: str) -> list[Signature]:
    """Return the overloads of the function ``name``, in pybind11's order.

    Empty if ``doc`` has no signature: ``py::options`` can leave it out.
    """
    head, overloaded, rest = doc.partition(_OVERLOADED)
    if not overloaded or "\n" in head:
        one = _signature(name, doc)
        return [one] if one else []
    return list(_numbered(name, rest))


def _numbered(name: str, text: str) -> Iterator[Signature]:
    """Yield the overloads after ``1.``, ``2.``, and so on. Numbered lists in docstrings are not overloads."""
    places: list[tuple[int, int]] = []
    for found in _NUMBERED.finditer(text):
        if int(found[1]) == len(places) + 1 and _signature(name, text[found.end() :]):
            places.append((found.start(), found.end()))
    for number, (_, start) in enumerate(places, 1):
        end = places[number][0] if number < len(places) else len(text)
        if one := _signature(name, text[start:end]):
            yield one


def _signature(name: str, text: str) -> Signature | None:
    if not text.startswith(f"{name}("):
        return None
    end = closing(text, len(name))
    if end is None or not text.startswith(" -> ", end + 1):
        return None
    result, _, doc = text[end + 5 :].partition("\n")
    return Signature(name, tuple(_arguments(text[len(name) + 1 : end])), result.strip(), doc.strip())


def _arguments(text: str) -> Iterator[Argument]:
    keyword_only = False
    for part in split(text):
        if part == "*":
            keyword_only = True
        elif part != "/":
            declared, *default = split(part, " = ")
            name, _, type_ = declared.partition(":")
            yield Argument(name.strip(), type_.strip(), " = ".join(default) if default else None, keyword_only)
