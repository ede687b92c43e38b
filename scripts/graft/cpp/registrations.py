"""Find registrations with ``TORCH_LIBRARY_IMPL`` in C++ sources: kernels, batching rules, autocast policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .tokens import without_comments

_BLOCK = re.compile(r"\bTORCH_LIBRARY_IMPL\(\s*aten\s*,\s*(\w+)\s*,\s*(\w+)\s*\)\s*\{")
# `m.impl("name", kernel)`, and macros such as `KERNEL_CPU(name, policy)` and `VMAP_SUPPORT2(name, overload, rule)`.
_BY_METHOD = (
    r'\b%s\s*\.\s*impl\w*\(\s*(?:\w+\()?"(?:aten::)?([\w.]+)"\s*\)?\s*(?:,\s*(?:TORCH_FN\()?&?([\w:]+)\)?\s*\))?'
)
_BY_MACRO = re.compile(r"\b(?!TORCH_|C10_)[A-Z][A-Z0-9_]{2,}\(\s*(\w+)\s*(?:,\s*(\w+))?")


class Registration(NamedTuple):
    """A registration for an operator of the namespace ``aten``.

    Args:
        line: counted from 1.
        key: the dispatch key.
        names: the possible names of the operator: a macro's second argument may be the overload, or not.
        kernel: the function, if it is a plain name.
    """

    line: int
    key: str
    names: tuple[str, ...]
    kernel: str


def registrations(text: str) -> Iterator[Registration]:
    """Yield the registrations in a source."""
    code = without_comments(text)
    for block in _BLOCK.finditer(code):
        body = code[block.end() : _end_of(code, block.end())]
        line = code.count("\n", 0, block.end()) + 1
        for found in re.finditer(_BY_METHOD % re.escape(block[2]), body):
            yield Registration(line + body.count("\n", 0, found.start()), block[1], (found[1],), found[2] or "")
        for found in _BY_MACRO.finditer(body):
            names = (f"{found[1]}.{found[2]}", found[1]) if found[2] else (found[1],)
            yield Registration(line + body.count("\n", 0, found.start()), block[1], names, "")


def _end_of(code: str, start: int) -> int:
    """Return the position of the brace that closes the block whose content starts at ``start``."""
    depth = 1
    for brace in re.finditer(r"[{}]", code[start:]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return start + brace.start()
    return len(code)
