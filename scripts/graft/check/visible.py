"""Find the operators of PyTorch and the functions of native folders that a source sees through its includes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from ..inputs.cplusplus import Definition, Source
from ..inputs.includes import INCLUDE, included
from .calls import Call, calls_of, methods_of

_CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b\s*(.*?)\s*$")
# The headers with all operators, and with all kernels of PyTorch.
_ALL = {"": "ATen/Functions.h", "_native": "ATen/NativeFunctions.h"}
# The folders of the base in which compilers look for headers.
_FOLDERS = ("torch/include", "torch/include/torch/csrc/api/include")


class Unit:
    """A source with the headers of its folders that it includes.

    Args:
        source: the source.
        by_name: all sources of the folders.
        searched: the folders of headers that settings name.
        tree: the unpacked base.
    """

    def __init__(self, source: Source, by_name: Mapping[Path, Source], searched: Sequence[Path], tree: Path) -> None:
        self.source = source
        self._by_name = by_name
        self._searched = searched
        self._tree = tree

    @cached_property
    def sources(self) -> list[Source]:
        """The source and the headers."""
        texts = self._by_name
        names = included(lambda name: texts[name].code if name in texts else None, [self.source.name], self._searched)
        return [self.source, *(texts[name] for name in sorted(names))]

    def named(self, name: str) -> list[Definition]:
        """Return the functions called ``name``, except for those in namespace at itself."""
        every = [each for part in self.sources for each in (*part.definitions, *part.declarations)]
        return [each for each in every if each.name == name and not each.macro and each.namespace != "at"]

    def calls(self, name: str) -> list[Call]:
        """Return the calls of the function ``name`` in the source, but not those of a function of a class."""
        calls = [*calls_of(self.source.text, name)] if name in self.source.words else []
        methods = {each for part in self.sources for each in methods_of(part.text)} if calls else set()
        return [call for call in calls if not (call.is_in_class and name in methods)]

    def declares(self, operator: str, kind: str = "", *, surely: bool = False) -> bool:
        """Return whether a header declares ``at::operator``, or, if ``kind`` is ``_native``, its kernel.

        If ``surely``, an include below an ``#if`` does not count.
        """
        names = self._surely if surely else self._perhaps
        return f"ATen/ops/{operator}{kind}.h" in names or any(_includes(self._tree, name, _ALL[kind]) for name in names)

    @cached_property
    def _surely(self) -> set[str]:
        return {name for each in self.sources for name in INCLUDE.findall(_compiled(each.code, surely=True))}

    @cached_property
    def _perhaps(self) -> set[str]:
        return {name for each in self.sources for name in INCLUDE.findall(_compiled(each.code, surely=False))}


@cache
def _includes(tree: Path, name: str, wanted: str) -> bool:
    """Return whether a header of the base is ``wanted`` or includes it, directly or indirectly."""
    left, seen = [name], {name}
    while left:
        each = left.pop()
        if each == wanted:
            return True
        path = next((path for folder in _FOLDERS if (path := tree / folder / each).is_file()), None)
        if path and not each.startswith(("ATen/ops/", "c10/")):
            text = _compiled(path.read_text(encoding="utf-8", errors="replace"), surely=False)
            found = {*INCLUDE.findall(text)} - seen
            seen |= found
            left += found
    return False


def _compiled(code: str, *, surely: bool) -> str:
    """Return the lines that are compiled if AT_PER_OPERATOR_HEADERS is defined; if ``surely``, only those outside of
    any ``#if`` that is not an include guard.
    """
    kept: list[str] = []
    values: list[bool | None] = []
    for line, after in pairwise([*code.splitlines(), ""]):
        condition = _CONDITION.match(line)
        if not condition:
            if False not in values and not (surely and None in values):
                kept.append(line)
        elif condition[1].startswith("if"):
            values.append(_value(condition[1], condition[2], after))
        elif values and condition[1] == "endif":
            values.pop()
        elif values:
            last = values.pop()
            values.append(None if last is None or condition[1] == "elif" else not last)
    return "\n".join(kept)


def _value(word: str, name: str, after: str) -> bool | None:
    """Return the value of a condition; None if it is unknown."""
    if name == "AT_PER_OPERATOR_HEADERS":
        return {"ifdef": True, "ifndef": False}.get(word)
    is_guard = word == "ifndef" and re.match(rf"\s*#\s*define\s+{re.escape(name)}\b", after)
    return True if is_guard else None
