"""What an editable install runs at the end of ``import torch``: when it builds, which of several processes does, and
what a killed build leaves. The builder is a program that notes when it ran.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from graft.core.layout import PACKAGE, PACKAGES
from graft.deliver.shipped import edited
from helpers import write

PROGRAM = """
import os, sys
import ops.edited
try:
    ops.edited.build_again(os.path.dirname(ops.edited.__file__), "ops")
except ValueError as error:
    print(error)
"""

# Does what `graft.project.pep517` does around a build, in the folder of its arguments. The source says how it ends.
BUILDER = """
import json, os, sys, time
from graft.deliver.shipped.edited import STATE, state_of
place, native = sys.argv[1:]
state = os.path.join(place, "ops", STATE)
if os.path.exists(state):
    os.remove(state)
read = [[native], [], []]
files = state_of(*read)
source = open(os.path.join(native, "A.cpp")).read()
with open(os.path.join(place, "log"), "a") as log:
    log.write(f"{os.getpid()}\\n")
while os.path.exists(os.path.join(place, "hold")):
    time.sleep(0.02)
errors = f"A.cpp: {source}" if "error" in source else ""
with open(state + ".partial", "w") as file:
    json.dump({"read": read, "files": files, "errors": errors}, file)
os.rename(state + ".partial", state)
if errors:
    sys.exit("error: " + errors)
"""

WAITED = "ops: another process is building what was edited; waiting for it to end\n"
BUILT = "ops: building what was edited ...\n"


class Install:
    """An editable install, and the processes that import it."""

    def __init__(self, folder: Path) -> None:
        self.place, self.source = folder / "place", folder / "native/A.cpp"
        self.state, self.hold = self.place / "ops" / edited.STATE, self.place / "hold"
        command = [sys.executable, str(folder / "builder.py"), str(self.place), str(self.source.parent)]
        self.command = {"command": command, "home": str(folder / "home")}
        own = {"__init__.py": "", "edited.py": (PACKAGE / "deliver/shipped/edited.py").read_text()}
        own[edited.COMMAND] = json.dumps(self.command)
        write(self.place / "ops", own)
        write(folder, {"builder.py": BUILDER, "native/A.cpp": "first"})

    def start(self) -> subprocess.Popen[str]:
        """Import it in another process, in a session of its own."""
        env = {**os.environ, "PYTHONPATH": f"{self.place}:{PACKAGES}"}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def imported(self) -> tuple[str, str]:
        """Import it. Return the errors of the build, and what was said meanwhile."""
        process = self.start()
        out, said = process.communicate()
        assert process.returncode == 0, said
        return out, said

    def started(self, builder: int) -> subprocess.Popen[str]:
        """Import it in another process, whose builder runs until `hold` is deleted."""
        self.hold.touch()
        process = self.start()
        self.builder(builder)
        return process

    def waiting(self) -> subprocess.Popen[str]:
        """Import it in another process, which waits for a builder."""
        process = self.start()
        assert process.stderr and process.stderr.readline() == WAITED
        return process

    def builders(self) -> list[int]:
        """Return the processes that have built."""
        log = self.place / "log"
        return [int(line) for line in log.read_text().splitlines()] if log.exists() else []

    def builder(self, number: int) -> int:
        """Wait until a builder has begun. Return its process."""
        while len(self.builders()) <= number:
            time.sleep(0.02)
        return self.builders()[number]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    install = Install(tmp_path)
    assert install.imported() == ("", BUILT)
    assert install.imported() == ("", "")
    return install


# A kill may leave an empty file, or none.
DAMAGED = [None, "", "{", "null", "[]", "{}", "5", '{"read": 1}', '{"read": [1, 2, 3]}', '{"read": [[], [], []]}']
DAMAGED += ["\0", "\ufeff{}"]


def damage(file: Path, text: str | None) -> None:
    file.unlink() if text is None else file.write_text(text)


def test_state_that_is_not_whole_means_build(install: Install) -> None:
    for text in DAMAGED:
        damage(install.state, text)
        assert [install.imported() for _ in range(2)] == [("", BUILT), ("", "")], text


def test_command_that_is_not_whole_or_has_no_python_is_told_with_a_remedy(install: Install) -> None:
    command = install.place / "ops" / edited.COMMAND
    install.source.write_text("second")
    for text in (json.dumps({**install.command, "command": ["/gone/python"]}), *DAMAGED):
        damage(command, text)
        out, said = install.imported()
        assert said == BUILT and (out.startswith(f"{command}: ") or "/gone/python" in out), text
        assert out.endswith("; `pip install -e` with the project's folder writes it again\n")
        command.touch()


def at_once(install: Install, count: int = 4) -> list[tuple[str, str]]:
    """Return what ``count`` processes say that import it after an edit, while it is being built."""
    processes = [install.started(1), *(install.waiting() for _ in range(count - 1))]
    install.hold.unlink()
    results = [process.communicate() for process in processes]
    assert all(process.returncode == 0 for process in processes), results
    return results


def test_one_of_several_builds_and_the_others_wait(install: Install) -> None:
    install.source.write_text("second")
    assert at_once(install) == [("", BUILT), *[("", "")] * 3]
    assert len(install.builders()) == 2
    assert install.imported() == ("", "")


def test_a_mistake_is_compiled_once_and_told_to_all(install: Install) -> None:
    """The next import tries again: its cause may be elsewhere."""
    install.source.write_text("error 1")
    assert at_once(install) == [("A.cpp: error 1\n", BUILT), *[("A.cpp: error 1\n", "")] * 3]
    assert len(install.builders()) == 2
    assert install.imported() == ("A.cpp: error 1\n", BUILT)
    install.source.write_text("third")
    assert install.imported() == ("", BUILT)


def test_a_mistake_that_is_repaired_meanwhile_is_not_told(install: Install) -> None:
    install.source.write_text("error 1")
    first = install.started(1)
    second = install.waiting()
    install.source.write_text("repaired")
    install.hold.unlink()
    assert first.communicate() == ("A.cpp: error 1\n", BUILT)
    assert second.communicate() == ("", BUILT)


def test_process_that_is_killed_leaves_the_lock_to_its_builder(install: Install) -> None:
    install.source.write_text("second")
    first = install.started(1)
    first.send_signal(signal.SIGKILL)
    assert first.communicate() == ("", BUILT)
    second = install.waiting()
    install.hold.unlink()
    assert second.communicate() == ("", "")
    assert len(install.builders()) == 2


def test_builder_that_is_killed_leaves_the_lock_to_the_next_process(install: Install) -> None:
    """With its process, as at the end of a session, or alone. What a build before it said is not told again."""
    install.source.write_text("error 1")
    assert install.imported() == ("A.cpp: error 1\n", BUILT)
    first = install.started(2)
    builder = install.builder(2)
    second = install.waiting()
    first.send_signal(signal.SIGKILL)
    os.kill(builder, signal.SIGKILL)
    assert first.communicate() == ("", BUILT)
    builder = install.builder(3)
    third = install.waiting()
    os.kill(builder, signal.SIGKILL)
    assert second.communicate() == ("the builder ended with exit code -9\n", BUILT)
    install.builder(4)
    install.hold.unlink()
    assert third.communicate() == ("A.cpp: error 1\n", BUILT)


def test_processes_that_a_process_forks_meanwhile_do_not_keep_the_lock(install: Install, tmp_path: Path) -> None:
    forked = f"""
import os, time
from graft.deliver.shipped.edited import locked
with locked({str(install.place)!r}, "busy"):
    if not os.fork():
        time.sleep(60)
        os._exit(0)
print("released", flush=True)
"""
    env = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    command = [sys.executable, "-c", forked]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout and process.stdout.readline() == "released\n"
        with edited.locked(str(install.place), "busy") as (_, has_waited):
            assert not has_waited
        os.killpg(process.pid, signal.SIGKILL)
