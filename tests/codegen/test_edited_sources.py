"""Random edits of every source of kernels of PyTorch 2.6.0: what is derived is what changed, and what names it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from edited_sources import EDITS, functions, sources
from graft.checkout.code import Code
from graft.cpp.statements import Kind, Statement, statements

# Functions of the file that call another one, at most: an edit that takes more has lost where a function ends.
_MOST = 12


@pytest.fixture(scope="module", name="texts")
def _texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sources(tmp_path_factory.mktemp("tree"))


def naming(text: str, names: frozenset[str]) -> set[str]:
    """Return the functions of a file that name one of these, directly or through others."""
    known, found = {*names}, {*names}
    every = [each for each in statements(text) if each.kind in (Kind.FUNCTION, Kind.OTHER, Kind.MACRO, Kind.TYPE)]
    while found:
        users = [each for each in every if not found.isdisjoint(re.findall(r"\w+", text[each.start : each.end]))]
        found = {name for each in users for name in each.names} - known
        known |= found
    return known


def edits(texts: dict[str, str]) -> Iterator[tuple[str, str, str, Statement]]:
    for number, (name, text) in enumerate(texts.items()):
        if functions(text):
            for edit in EDITS:
                yield name, text, *edit(text, random.Random(number))


def test_what_changed_and_what_names_it(texts: dict[str, str]) -> None:
    assert len(texts) > 300
    for name, before, after, function in edits(texts):
        code = Code(before, after)
        derived = {each for i in code.affected for each in code.statements[i].names}
        assert function.names <= derived, name
        assert derived <= naming(after, function.names | {"graft_fresh"}), name
        assert len(code.functions) <= _MOST, name
        text = code.text(code.functions | function.names)
        conditions = re.findall(r"^[ \t]*#[ \t]*(if|endif)", text, re.M)
        assert text.count("\n") == after.count("\n") and conditions.count("if") == conditions.count("endif"), name
        assert all(each.kind is not Kind.WHOLE for each in statements(text)), name


def test_an_include_changes_nothing(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        assert Code(text, f"#include <ATen/ops/zeta.h>\n{text}").affected == set(), name
