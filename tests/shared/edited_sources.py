"""Random edits of sources of PyTorch 2.6.0: a line in a function, or a function that the last one of the file calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from checkout_repository import NATIVE, of_2_6_0
from graft.checkout.sources import FUNCTORCH, is_source, why_left
from graft.cpp.statements import Kind, Statement, statements

# Returns the text of a file with an edit, and the function that changes.
Edit = Callable[[str, random.Random], tuple[str, Statement]]

PATTERNS = (f"{NATIVE}/*.cpp", f"{FUNCTORCH}/*.cpp")


def sources(nowhere: Path) -> dict[str, str]:
    """Return the sources that a checkout can have compiled for CPUs, by their paths; ``nowhere`` is an empty folder."""
    every = of_2_6_0(PATTERNS)
    names = [name for name in sorted(every) if is_source(name) and not why_left(name, nowhere, has_cuda=False)]
    return {name: every[name].decode() for name in names}


def functions(text: str) -> list[tuple[Statement, int]]:
    """Return the functions of a file, each with the place of its body's brace."""
    found = [each for each in statements(text) if each.kind is Kind.FUNCTION and not each.expansion]
    return [(each, brace) for each in found if (brace := _body(text, each)) > 0]


def _body(text: str, function: Statement) -> int:
    depth = 0
    for at in range(text.rfind("}", function.start, function.end), function.start - 1, -1):
        depth += {"}": 1, "{": -1}.get(text[at], 0)
        if text[at] == "{" and depth == 0:
            return at
    return -1


def with_line(text: str, chosen: random.Random) -> tuple[str, Statement]:
    """Add a line to a function."""
    function, brace = chosen.choice(functions(text))
    return f"{text[: brace + 1]}\n  (void)sizeof(int);{text[brace + 1 :]}", function


def with_function(text: str, chosen: random.Random) -> tuple[str, Statement]:
    """Add a function, which the last one calls."""
    function, brace = functions(text)[-1]
    fresh = "static int graft_fresh(int x) { return x; }\n"
    after = f"{text[: brace + 1]}\n  (void)graft_fresh(1);{text[brace + 1 :]}"
    return f"{after[: function.start]}{fresh}{after[function.start :]}", function


EDITS: tuple[Edit, ...] = (with_line, with_function)
