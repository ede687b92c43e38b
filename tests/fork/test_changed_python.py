"""What a branch changes in a Python file, as text behind the release's."""

from __future__ import annotations

from typing import Any

import pytest
from graft.checkout.changed_python import Difference
from graft.checkout.python_operators import without_docstrings
from helpers import beside

CASES = beside(__file__)

BEFORE = CASES["before"]


def values(text: str) -> dict[str, Any]:
    """Return what a user of a module sees."""
    names: dict[str, Any] = {"__name__": "module"}
    exec(compile(text, "module", "exec"), names)
    called = {name: names[name](1) for name in ("one", "two", "three", "four", "six") if name in names}
    return {**called, "listed": sorted(names["__all__"]), "size": names["Five"].size, "sep": names.get("sep")}


@pytest.mark.parametrize(("old", "new"), CASES["behind"])
def test_text_behind_makes_the_same_module(old: str, new: str) -> None:
    after = BEFORE.replace(old, new)
    assert values(BEFORE + Difference(BEFORE, after).lines()) == values(after)
    assert values(after) != values(BEFORE)


def test_comments_and_layout_add_nothing() -> None:
    assert Difference(BEFORE, BEFORE.replace("def two(x):", "# two\ndef two( x ):")).lines() == ""


@pytest.mark.parametrize(("old", "new", "said"), CASES["not_behind"])
def test_what_cannot_be_behind_is_named(old: str, new: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Difference(BEFORE, BEFORE.replace(old, new)).lines()


@pytest.mark.parametrize(("before", "after", "said"), CASES["taken_at_import"])
def test_what_the_file_takes_at_import_is_named(before: str, after: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Difference(before, after).lines()


def test_docstrings_of_new_operators_are_taken_out() -> None:
    text = """add_docstr(
    torch.mine,
    r'''
mine(input) -> Tensor
''',
)

x = 1
add_docstr(torch.add, "PyTorch's")
add_docstr_all("mine", "of the method")
other = _add_docstr(_fft.fft_other, "{}".format(x))
"""
    rest, found = without_docstrings(text, {"mine", "fft_other"})
    assert rest.splitlines() == [*[""] * 7, "x = 1", 'add_docstr(torch.add, "PyTorch\'s")', "", ""]
    assert found == {"mine": "\nmine(input) -> Tensor\n", "fft_other": ""}
