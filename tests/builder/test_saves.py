"""When a save counts: once something differs, and everything is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.inputs.watch import States, settled, states, wait_for_save

A, B = Path("a"), Path("b")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; time passes in these alone."""
    pauses: list[float] = []
    monkeypatch.setattr("graft.inputs.watch.time.sleep", pauses.append)
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"graft.inputs.watch.time.{name}", lambda: sum(pauses))
    return pauses


def seen_in_turn(*found: States) -> Callable[[], States]:
    """Return a function that finds these states one after another, and then the last again and again."""
    left = list(found)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_something_has_to_differ(clock: list[float]) -> None:
    look = seen_in_turn({A: 1}, {A: 1}, {A: 1}, {A: 2})
    assert wait_for_save(look, {A: 1}) == {A: 2}
    assert len(clock) == 5


def test_all_files_are_written_first(clock: list[float]) -> None:
    look = seen_in_turn({A: 2, B: 1}, {A: 2, B: 2}, {A: 3, B: 2}, {A: 3, B: 2})
    assert wait_for_save(look, {A: 1, B: 1}) == {A: 3, B: 2}


def test_absent_file_is_waited_for(clock: list[float]) -> None:
    look = seen_in_turn({A: 2}, {A: 2}, {A: 2}, {A: 2, B: 2})
    assert settled(look, {A: 1, B: 1}, {A: 2}) == {A: 2, B: 2}


def test_deleted_file_is_not_waited_for_long(clock: list[float]) -> None:
    assert settled(seen_in_turn({A: 2}), {A: 1, B: 1}, {A: 2}) == {A: 2}
    assert 2 <= sum(clock) < 2.5


def test_pauses_follow_the_time_that_a_look_takes(clock: list[float]) -> None:
    def look() -> States:
        clock.append(5.0)  # git status of a large checkout
        return {A: 2}

    assert settled(look, {A: 1}, {A: 1}) == {A: 2}
    assert [pause for pause in clock if pause != 5.0] == [0.2, 20.0]


def test_same_time_and_size_are_another_state(tmp_path: Path) -> None:
    """As of a tool that restores the modification time of what it writes."""
    file = tmp_path / "native_functions.yaml"
    file.write_text("[]\n")
    before, times = states([tmp_path]), file.stat()
    new = tmp_path / "new"
    new.write_text("{}\n")
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(tmp_path / "native_functions.yaml")
    assert states([tmp_path]) != before
