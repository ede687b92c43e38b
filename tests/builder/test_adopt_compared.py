"""What `graft adopt --compare` says of pairs of operators that are alike, or differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from graft.adopt.compare import WAYS, _told
from graft.adopt.compare_child import in_child, of_operator, worse
from torch import Tensor

NAMESPACE = "graft_compared"


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Operators of an extension, `theirs_*`, and ours of the same schemas."""
    opened = torch.library.Library(NAMESPACE, "DEF")
    yield opened
    opened._destroy()


def define(library: Any, name: str, schema: str, kernel: Callable[..., Any]) -> None:
    library.define(f"{name}{schema}")
    library.impl(name, kernel, "CompositeExplicitAutograd")


def verdicts(
    library: Any, name: str, theirs: Callable[..., Any], ours: Callable[..., Any], *samples: Any
) -> dict[str, str]:
    """Define the pair, and compare it on the samples."""
    schema = "(Tensor x, int by=1) -> Tensor"
    define(library, f"theirs_{name}", schema, theirs)
    aten = torch.library.Library("aten", "FRAGMENT")
    try:
        define(aten, f"graft_{name}", schema, ours)
        facts = {"entry": f"graft_{name}{schema}", "arguments": ["x", "by"], "kept": None}
        return of_operator(f"{NAMESPACE}::theirs_{name}", facts, lambda make: iter(samples))
    finally:
        aten._destroy()


def grown(x: Tensor, by: int = 1) -> Tensor:
    if by > 5:
        raise RuntimeError("too much")
    return x + by


X = torch.ones(3)


def test_alike(library: Any) -> None:
    found = verdicts(library, "alike", grown, lambda x, by=1: x + by, X, (X, 2), (X, {"by": 3}))
    assert {found[way] for way in ("call", "script", "trace")} == {"same"} and "version" not in found


def test_another_result_is_told_though_an_input_is_refused(library: Any) -> None:
    found = verdicts(library, "other", grown, lambda x, by=1: x - by, (X, 9), (X, 0), (X, 2))
    assert found["call"] == found["script"] == "another result"
    assert verdicts(library, "refused", grown, grown, (X, 9))["call"] == "refused"


# Too many arguments, another name, and one that is missing.
WRONG = [("x", 1, 2), ("x", {"bye": 1}), {"by": 1}]


@pytest.mark.parametrize("sample", WRONG)
def test_wrong_samples_are_told(library: Any, sample: Any) -> None:
    found = verdicts(library, f"wrong_{WRONG.index(sample)}", grown, grown, sample)
    assert found["call"].startswith("TypeError: samples.py gives ") and found["call"].endswith("has x, by")


def test_crash(library: Any) -> None:
    assert in_child(lambda: os._exit(3)) is None
    assert in_child(lambda: {"call": "same"}) == {"call": "same"}


def test_table() -> None:
    found = {"n::a": {"call": "same", "vmap": "another result"}, "n::b": None, "n::c": {"call": "refused"}}
    head, _, *lines = _told(found, ["n::a", "n::d"]).splitlines()
    assert head.split() == ["operator", *WAYS]
    text = "\n".join(lines)
    assert "n::a: vmap: another result" in text and "crash" in text and "no inputs: n::d" in text
    assert "an input of n::c" in text


def test_the_worst_verdict_counts() -> None:
    assert worse("same", "-") == "-" and worse("another result", "refused") == "another result"
