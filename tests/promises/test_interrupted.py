"""Builds that are interrupted, killed or out of room: what they say, what they leave, and how the next one goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import Disturbed
from place import STEPS, Place, sha256
from snippets import write_shown_folder

from scripts.common.errors import PackError

GOES_ON = "interrupted; run the same command again to go on\n"


def test_interrupted_build_says_so_in_one_line(disturbed: Disturbed) -> None:
    outcome = disturbed.stopped["interrupted"]
    assert outcome.code == 130
    assert outcome.said.replace("\r\n", "\n").endswith(f"check and compile failed\n{GOES_ON}")
    assert outcome.said.count("interrupted") == 1 and "Traceback" not in outcome.said


def test_wheel_that_cannot_grow_is_named_with_what_helps(disturbed: Disturbed) -> None:
    outcome = disturbed.stopped["no room"]
    assert outcome.code == PackError.exit_code
    (error,) = (line for line in outcome.said.splitlines() if line.startswith("error: "))
    assert error.startswith(f"error: {disturbed.place.out}/torch-") and error.endswith(": File too large")
    assert "  next: raise the limit on the size of files (`ulimit -f`)\n" in outcome.said


def test_stopped_builds_leave_nothing_where_wheels_go(disturbed: Disturbed) -> None:
    assert disturbed.stopped["killed"].code == -signal.SIGKILL
    assert disturbed.left == {"interrupted": [], "killed": [], "no room": [], "built": [disturbed.place.wheel.name]}


def test_next_build_goes_on_where_it_was_stopped(disturbed: Disturbed) -> None:
    """At least one source was compiled before each stop; the build that ran out of room had compiled all."""
    assert "(3/7) generate 0.0 s\n(4/7) check and compile nothing to do" in disturbed.stopped["built"].said
