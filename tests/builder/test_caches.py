"""What torch remembers of operators, and forgets when they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stock_process import run

# tests/loaded shows the same from outside.
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("caches_program.py")


@pytest.fixture(scope="module")
def packets() -> Any:
    return run(PROGRAM, "packets")["packets"]


def test_a_packet_stays_and_its_overloads_are_new(packets: Any) -> None:
    schema = "aten::soft_clip(Tensor self, float limit=2., float scale=1.) -> Tensor"
    assert packets["before"] == [["default", "other"], ["default", "other"]]
    assert packets["packet"]
    assert packets["overload"] == [True, schema, ["default", "third"], ["default"]]
    assert packets["called"] == [[3], [5]]
    assert packets["scripted"] == [7]
    assert not packets["has_other"]


def test_a_packet_stays_a_key_of_tables(packets: Any) -> None:
    assert packets["in_tables"] == ["packet", "packet"]


def test_an_operator_that_is_gone(packets: Any) -> None:
    """Whatever walks all operators works, and meets two overloads less."""
    assert packets["gone"] == [False, False, False]
    assert packets["walked_after"] == packets["walked"] - 2


def test_keys_on_disk() -> None:
    keys = run(PROGRAM, "keys")["keys"]
    plain, *found = keys["plain"]
    assert found[0] == found[4] == plain
    assert found[1] == found[3] != plain
    assert len({*found}) == 3
    assert keys["by_name"] == keys["graphs"] == keys["autograd"] == found
    assert keys["has"] == ["clear", "prefetch", "set"]


def test_facts() -> None:
    """Each is stale before its caches are forgotten, or the test shows nothing."""
    facts = run(PROGRAM, "facts")["facts"]
    before, stale, after = facts["before"], facts["stale"], facts["after"]
    assert before == {
        "fake": [2, 3],
        "rule": False,
        "decomposition": False,
        "copied": False,
        "lowering": False,
        "fallback": False,
        "pointwise": before["pointwise"],
    }
    assert facts["made"] == [True, True]
    assert stale == {**before, "lowering": True, "fallback": True}
    assert after == {
        "fake": [1, 1],
        "rule": True,
        "decomposition": True,
        "copied": True,
        "lowering": False,
        "fallback": False,
        "pointwise": before["pointwise"] + 1,
    }
    assert facts["changed_decompositions"] == ["aten.soft_clip.default"]


def test_caches_are_emptied() -> None:
    results = run(PROGRAM, "emptied")["emptied"]
    before, after = results["before"], results["after"]
    assert min(*before["functions"], before["schema"]) > 0
    assert max(*after["functions"], after["schema"]) == 0
    assert {*before["signatures"]} - {*after["signatures"]} == {"aten::soft_clip"}
    assert "aten::sin" in after["signatures"]
    assert before["dispatch"] and not after["dispatch"]
    assert results["sharding"] == [[1, 1], [0, 1]]  # hits and misses: a second call was a hit, and one later is not


def test_nothing_is_imported_for_its_caches() -> None:
    assert run(PROGRAM, "unloaded")["unloaded"] == []
