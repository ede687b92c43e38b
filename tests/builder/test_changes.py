"""What the Python texts of a load change in torch, undone: as if they had never run. The oracle is another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stock_process import run

# tests/loaded shows the same from outside.
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("changes_program.py")


@pytest.fixture(scope="module")
def fresh() -> Any:
    """The tables of a process that runs no text."""
    return run(PROGRAM, "fresh")


def differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what differs, by table."""
    found = {}
    for title in {*first, *second}:
        each, other = (
            sorted(map(repr, value.items() if isinstance(value, dict) else value))
            if not isinstance(value, str)
            else value.splitlines()
            for value in (first[title], second[title])
        )
        if each != other or (isinstance(first[title], list) and first[title] != second[title]):
            found[title] = sorted({*each} ^ {*other})
    return found


def test_undone_and_edited(fresh: Any) -> None:
    results = run(PROGRAM, "edited")
    assert results["works"] == [[0.5, 0.5], 7, [3.0], "meta", [2]]
    assert set(results["changed"]) >= {
        "all",
        "decompositions meta",
        "decompositions post_autograd",
        "dispatcher",
        "docs",
        "fakes",
        "flops",
        "inductor",
        "kernels",
        "library",
        "lowerings",
        "modules",
        "names",
        "pytree",
        "strategies",
        "tensor",
    }
    assert results["edited"] == [4.0]
    assert "aten/soft_clip/Meta" in " ".join(results["impls"])
    assert results["imports"] == ["torch.nn.utils.prune", "torch_attn::_varlen_attn"]
    assert "clip_demo::twice is no longer defined" in results["gone"]
    assert not differing(results["undone"], fresh)


def test_undone_when_a_text_raises(fresh: Any) -> None:
    results = run(PROGRAM, "raised")
    assert results["error"] == "'mine'"
    assert not differing(results["undone"], fresh)


def test_later_changes_of_others_stay() -> None:
    assert run(PROGRAM, "others") == {
        "gelu": "theirs",
        "all": ["First", "Linear", "Theirs"],
        "linear": True,
        "table": "theirs",
        "method": "theirs",
        "soft_clip": False,
    }


def test_a_text_that_imports_what_another_text_is_behind() -> None:
    results = run(PROGRAM, "nested")
    theirs = [f"torch.nn.functional.{name}" for name in ("selu", "celu", "elu")]
    assert results["states"] == [["first", "first", "second"], [*theirs[:2], "second"], theirs]
    assert results["prune"] == "torch.nn.utils.prune.random_unstructured"
    assert results["module"]


def test_seconds() -> None:
    """With compilers, DTensor and export loaded; 0.15 on an idle core."""
    assert run(PROGRAM, "timed") < 1
