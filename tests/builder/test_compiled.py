"""Which code torch.compile compiles again after an operator has changed: a backend counts what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stock_process import run

# tests/loaded shows the same from outside.
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("compiled_program.py")
SCENARIOS = ("direct", "composed", "many", "modules", "broken", "higher_order", "missed", "dead")


@pytest.fixture(scope="module")
def results() -> Any:
    return run(PROGRAM, *SCENARIOS)


def test_operators_in_the_graph(results: Any) -> None:
    one_each = [[1, *(int(i == j) for j in range(4))] for i in range(4)]
    assert results["direct"] == [[1, 1, 1, 1], *one_each, [0, 0, 0, 0, 0]]


def test_operators_of_which_others_are_composed(results: Any) -> None:
    assert results["composed"] == [1, 1, 1, 1, 1, 0]


def test_twelve_times_do_not_run_into_the_limit(results: Any) -> None:
    assert results["many"] == 12


def test_modules(results: Any) -> None:
    assert results["modules"] == [[1, 1, 1], [1, 0, 1]]


def test_graph_breaks_and_nested_functions(results: Any) -> None:
    assert results["broken"] == [2, 1, *(1, 0), *(1, 0), *(0, 1)]


def test_graphs_in_the_graph(results: Any) -> None:
    assert results["higher_order"] == [1, 1]


def test_operators_that_did_not_exist(results: Any) -> None:
    assert results["missed"] == [2, 0, 1, 31, 41, 0]


def test_code_is_held_weakly(results: Any) -> None:
    assert results["dead"] == [1, 0]


def test_hooks_are_installed_once(results: Any) -> None:
    """Before and after Dynamo is imported, and by a module that is imported again."""
    assert "torch._dynamo.output_graph" not in results["early"]
    assert results["once"]


def test_a_graph_from_the_disk(tmp_path: Path) -> None:
    used = ["clips::first", "clips::second"]
    results = run(PROGRAM, "on_disk", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert results["on_disk"] == [used, used, 1]
