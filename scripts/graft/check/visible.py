"""Find the operators of PyTorch and the functions of native folders that a source sees through its includes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from ..cpp.functions import Definition
from ..cpp.includes import INCLUDE, included, reached
from ..cpp.sources import Source
from ..cpp.tokens import branch, conditions
from .calls import Call, calls_of, methods_of

_CONDITION = re.compile(r"\s*#\s*(ifn?def)\s+(.*?)\s*$")
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

    def included(name: str) -> list[str]:
        path = next((path for folder in _FOLDERS if (path := tree / folder / name).is_file()), None)
        if not path or name.startswith(("ATen/ops/", "c10/")):
            return []
        return INCLUDE.findall(_compiled(path.read_text(encoding="utf-8", errors="replace"), surely=False))

    return wanted in reached([name], included)


def _compiled(code: str, *, surely: bool) -> str:
    """Return the lines that are compiled if AT_PER_OPERATOR_HEADERS is defined; if ``surely``, only those outside of
    any ``#if`` that is not an include guard.
    """
    lines = [*code.splitlines(), ""]

    @cache
    def value(directives: tuple[int, ...]) -> bool | None:
        first, *others = directives
        last = _value(lines[first], lines[first + 1])
        for each in others:
            last = None if last is None or "elif" in lines[each] else not last
        return last

    return "\n".join(
        line
        for line, around in zip(lines, conditions(lines), strict=False)
        if not branch(line) and not {False, *([None] if surely else [])} & {*map(value, around)}
    )


def _value(condition: str, after: str) -> bool | None:
    """Return the value of an ``#if``, with the line after it; None if it is unknown."""
    found = _CONDITION.match(condition)
    word, name = found.groups() if found else ("", "")
    if name == "AT_PER_OPERATOR_HEADERS":
        return {"ifdef": True, "ifndef": False}.get(word)
    is_guard = word == "ifndef" and re.match(rf"\s*#\s*define\s+{re.escape(name)}\b", after)
    return True if is_guard else None
