"""Two builds at once in one folder: one waits, and has nothing to do."""

from __future__ import annotations

import time

from helpers import write
from place import Place

# Runs a compiler only once the file `go` exists.
LAUNCHER = """#!/bin/sh
touch {0}/begun
until [ -e {0}/go ]; do sleep 0.05; done
exec "$@"
"""
BUSY = "another build is running here (process "


def test_one_builds_and_the_other_waits_for_it(plain: Place) -> None:
    kernel = (plain.home / "my_ops/SoftClip.cpp").read_text(encoding="utf-8")
    before = plain.state()
    write(plain.home, {"launcher": LAUNCHER.format(plain.home)})
    (plain.home / "launcher").chmod(0o755)
    with plain.edited({"SoftClip.cpp": f"{kernel}// edited at {time.time()}\n"}):
        command = [
            "env",
            f"GRAFT_LAUNCHER={plain.home}/launcher",
            *plain.command("build", "--out", plain.home / "at_once"),
        ]
        first = plain.start(command)
        while not (plain.home / "begun").exists():
            assert first.poll() is None, first.communicate()
            time.sleep(0.05)
        second = plain.start(command)
        assert second.stdout
        waited = next(line for line in second.stdout if BUSY in line)
        (plain.home / "go").touch()
        built, rest = first.communicate()[0], second.communicate()[0]
    assert (first.returncode, second.returncode) == (0, 0), built + rest
    (wheel,) = (plain.home / "at_once").iterdir()
    assert f"{BUSY}{first.pid})" in waited
    assert BUSY not in built and str(wheel) in built
    assert f"nothing changed: {wheel}\n" in rest
    assert plain.state() == before
