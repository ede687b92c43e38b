"""Builds that are interrupted, killed or out of space: what they report, what they leave, and how the next one
continues.

The wheel has the same bytes in any environment and after any failures.
"""

from __future__ import annotations

import re
import signal

from place import Disturbed, Place, sha256

GOES_ON = "interrupted; run the same command again to continue\n"


def test_interrupted_build_says_so_in_one_line(disturbed: Disturbed) -> None:
    outcome = disturbed.stopped["interrupted"]
    assert outcome.code == 130
    assert outcome.said.endswith(f"compile and link: failed\n{GOES_ON}")
    assert outcome.said.count("interrupted") == 1 and "Traceback" not in outcome.said


def test_wheel_that_cannot_grow_is_named_with_what_helps(disturbed: Disturbed) -> None:
    outcome = disturbed.stopped["no room"]
    assert outcome.code == 1
    (error,) = (line for line in outcome.said.splitlines() if line.startswith("error: "))
    assert error.startswith(f"error: {disturbed.place.out}/torch-") and error.endswith(": File too large")
    assert "  next: raise the limit on the size of files (`ulimit -f`)\n" in outcome.said


def test_stopped_builds_leave_nothing_where_wheels_go(disturbed: Disturbed) -> None:
    assert disturbed.stopped["killed"].code == -signal.SIGKILL
    assert disturbed.left == {"interrupted": [], "killed": [], "no room": [], "built": [disturbed.place.wheel.name]}


def test_next_build_goes_on_where_it_was_stopped(disturbed: Disturbed) -> None:
    """What was compiled before the stops is kept; the build without space compiled the rest."""
    compiled = {
        name: re.findall(r"^compile and link: (\d+) of (\d+) sources", outcome.said, re.M)
        for name, outcome in disturbed.stopped.items()
    }
    ((rest, every),) = compiled["no room"]
    assert 0 < int(rest) < int(every)
    assert compiled["built"] == [("0", every)]


def test_wheel_is_the_same_in_other_surroundings_and_after_failures(plain: Place, disturbed: Disturbed) -> None:
    """Another folder, umask, time zone, locale, hash seed and number of compilers."""
    assert disturbed.stopped["built"].code == 0, disturbed.stopped["built"].said
    assert disturbed.place.wheel.name == plain.wheel.name
    assert sha256(disturbed.place.wheel) == sha256(plain.wheel)


def test_wheel_can_be_read_as_its_folder_s_umask_says(disturbed: Disturbed) -> None:
    """The other umask was in effect, although no member of the wheel shows it."""
    assert disturbed.place.wheel.stat().st_mode & 0o777 == 0o600
