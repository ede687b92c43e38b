"""Steps of a build and their times; commands whose output is followed; tables."""

from __future__ import annotations

import re
import time

import pytest
from graft.core.console import Steps
from graft.core.process import follow


def test_what_is_only_counted_is_no_step(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(total=2)
    with steps.step("first"):
        pass
    with steps.counted("between"):
        time.sleep(0.02)
    with steps.step("second"):
        pass
    said = re.sub(r"\d+\.\d s", "T", capsys.readouterr().err)
    assert said == "(1/2) first T\n(2/2) second T\n"
    assert list(steps.seconds) == ["first", "between", "second"]
    assert steps.seconds["between"] >= 0.02


def test_step_that_fails_says_so_and_has_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(total=2)
    with pytest.raises(KeyError), steps.step("first"):
        raise KeyError
    assert capsys.readouterr().err == "(1/2) first failed\n"
    assert not steps.seconds


def test_each_line_is_handed_on_at_once() -> None:
    lines: list[tuple[str, float]] = []
    start = time.monotonic()
    command = ["sh", "-c", 'echo "$WORD"; sleep 0.5; echo two >&2; exit 3']
    code = follow(command, lambda line: lines.append((line, time.monotonic() - start)), env={"WORD": "one"})
    assert code == 3
    assert [line for line, _ in lines] == ["one\n", "two\n"]
    assert lines[0][1] < lines[1][1] - 0.4


def test_command_ends_when_it_is_futile() -> None:
    lines: list[str] = []
    start = time.monotonic()
    code = follow(["sh", "-c", "echo one; exec sleep 30"], lines.append, env={}, watch=lambda: bool(lines))
    assert code != 0
    assert time.monotonic() - start < 10
    assert lines == ["one\n"]


def test_command_that_is_not_futile_runs_to_its_end() -> None:
    asked: list[bool] = []
    command = ["sh", "-c", "sleep 0.7; echo done"]
    lines: list[str] = []
    assert follow(command, lines.append, env={}, watch=lambda: bool(asked.append(True))) == 0
    assert lines == ["done\n"]
    assert len(asked) >= 2
