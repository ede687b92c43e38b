"""The same input gives the same bytes, whatever surrounds the build and whatever came before it."""

from __future__ import annotations

from conftest import Disturbed
from place import Place, sha256


def test_wheel_is_the_same_in_other_surroundings_and_after_failures(plain: Place, disturbed: Disturbed) -> None:
    """Another folder, umask, time zone, locale, hash seed and number of compilers."""
    assert disturbed.stopped["built"].code == 0, disturbed.stopped["built"].said
    assert disturbed.place.wheel.name == plain.wheel.name
    assert sha256(disturbed.place.wheel) == sha256(plain.wheel)


def test_wheel_can_be_read_as_its_folder_s_umask_says(disturbed: Disturbed) -> None:
    """So the other umask was in force, which no member of the wheel shows."""
    assert disturbed.place.wheel.stat().st_mode & 0o777 == 0o600
