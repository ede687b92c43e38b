"""Steps of a build and their times."""

from __future__ import annotations

import re
import time

import pytest
from graft.core import console
from graft.core.console import StepLine, Steps
from helpers import Capture, Patch


def test_what_is_only_counted_is_no_step(capsys: Capture) -> None:
    steps = Steps()
    with steps.step("first"):
        pass
    with steps.counted("between"):
        time.sleep(0.02)
    with steps.step("second"):
        pass
    said = re.sub(r"\d+\.\d s", "T", capsys.readouterr().err)
    assert said == "first: T\nsecond: T\n"
    assert list(steps.seconds) == ["first", "between", "second"]
    assert steps.seconds["between"] >= 0.02


class Clock:
    """Stands in for the one that a log's lines go by."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


def test_log_gets_a_line_every_20_seconds(capsys: Capture, monkeypatch: Patch) -> None:
    """Also while a command says nothing, such as a compiler on a busy machine."""
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    line = StepLine("compile:")
    line.update("[1/9] a.cpp")
    said = []
    for seconds in (19, 20, 39, 41, 60):
        clock.now = 1000.0 + seconds
        line.repeat()
        said.append(capsys.readouterr().err)
    assert said == ["", "compile: [1/9] a.cpp, 20 s\n", "", "compile: [1/9] a.cpp, 41 s\n", ""]


def test_step_whose_body_says_nothing_is_repeated(capfd: Capture, monkeypatch: Patch) -> None:
    """With the real clock, and lines more often."""
    monkeypatch.setattr(console, "_LOGGED_EVERY", 0.1)
    steps, said, deadline = Steps(), "", time.monotonic() + 20
    with steps.step("generate"):
        while said.count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            said += capfd.readouterr().err
    said += capfd.readouterr().err
    assert re.fullmatch(r"(generate: \.\.\., \d+ s\n){2,}generate: \d+\.\d s\n", said)


def test_step_that_fails_says_so_and_has_no_time(capsys: Capture) -> None:
    steps = Steps()
    with pytest.raises(KeyError), steps.step("first"):
        raise KeyError
    assert capsys.readouterr().err == "first: failed\n"
    assert not steps.seconds
