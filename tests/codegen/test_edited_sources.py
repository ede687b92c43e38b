"""Random edits of every source of kernels of PyTorch 2.6.0: what is derived is what changed, and what names it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from checkout_repository import NATIVE, of_2_6_0
from graft.checkout.code import Code
from graft.checkout.sources import FUNCTORCH, is_source, why_left
from graft.checkout.statements import Kind, Statement, statements

# Functions of the file that call another one, at most: an edit that takes more has lost where a function ends.
_MOST = 12


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sources that a checkout can have compiled, by their paths."""
    every = of_2_6_0([f"{NATIVE}/*.cpp", f"{FUNCTORCH}/*.cpp"])
    nowhere = tmp_path_factory.mktemp("tree")
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


def naming(text: str, names: frozenset[str]) -> set[str]:
    """Return the functions of a file that name one of these, directly or through others."""
    known, found = {*names}, {*names}
    every = [each for each in statements(text) if each.kind in (Kind.FUNCTION, Kind.OTHER, Kind.MACRO, Kind.TYPE)]
    while found:
        users = [each for each in every if not found.isdisjoint(re.findall(r"\w+", text[each.start : each.end]))]
        found = {name for each in users for name in each.names} - known
        known |= found
    return known


def edits(sources: dict[str, str]) -> Iterator[tuple[str, str, str, Statement]]:
    for number, (name, text) in enumerate(sources.items()):
        if functions(text):
            for edit in (with_line, with_function):
                yield name, text, *edit(text, random.Random(number))


def test_what_changed_and_what_names_it(sources: dict[str, str]) -> None:
    assert len(sources) > 300
    for name, before, after, function in edits(sources):
        code = Code(before, after)
        derived = {each for i in code.affected for each in code.statements[i].names}
        assert function.names <= derived, name
        assert derived <= naming(after, function.names | {"graft_fresh"}), name
        assert len(code.functions) <= _MOST, name
        text = code.text(code.functions | function.names)
        conditions = re.findall(r"^[ \t]*#[ \t]*(if|endif)", text, re.M)
        assert text.count("\n") == after.count("\n") and conditions.count("if") == conditions.count("endif"), name
        assert all(each.kind is not Kind.WHOLE for each in statements(text)), name


def test_an_include_changes_nothing(sources: dict[str, str]) -> None:
    for name, text in sources.items():
        assert Code(text, f"#include <ATen/ops/zeta.h>\n{text}").affected == set(), name
