"""``graft.load(folder, watch=True)``: each save is built in the background, and loaded at the next ``graft.swap``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from clipped import INLINE, TWICE
from sessions import Folder, Session

LOADED = """
ops = graft.load(folder, watch=True)
swaps = []
def now():
    swaps.extend(graft.swap())
    return torch.twice(torch.ones(1)).item()
"""


@pytest.fixture
def session(only: Session, folder: Folder) -> Session:
    """The session that watches the folder."""
    only.run(f"folder = {str(folder.path)!r}{LOADED}")
    only.said()
    return only


def edit(folder: Folder, factor: int) -> None:
    """Save the kernel, which multiplies by 2 at first, with another factor."""
    folder.add("Twice.cpp", TWICE.replace("2 * factor()", str(factor)))


def becomes(session: Session, value: float, seconds: float = 120) -> None:
    """Wait until a swap gives a value."""
    deadline = time.monotonic() + seconds
    while session.value("now()") != value:
        assert time.monotonic() < deadline, session.said()
        time.sleep(0.1)


def watcher_of(session: Session) -> int:
    found = subprocess.run(
        ["pgrep", "-P", str(session.process.pid), "-f", "graft.session.watcher"], capture_output=True, text=True
    ).stdout.split()
    (process,) = map(int, found)
    return process


def answers_of(session: Session, name: str) -> Path:
    return Path(session.value(f"str(graft.session.loads.state().watches[{name!r}].answers)"))


def test_a_save_is_loaded_at_a_swap(session: Session, folder: Folder) -> None:
    edit(folder, 3)
    time.sleep(1)
    assert session.value("torch.twice(torch.ones(1)).item()") == 2  # nothing happens in the middle of a program
    becomes(session, 3)
    assert session.value("swaps") == ["clipped"]
    assert session.value("graft.swap()") == []


@pytest.mark.slow
def test_the_next_load_of_anything_swaps(session: Session, folder: Folder) -> None:
    edit(folder, 4)
    session.run(
        f"{INLINE}\n"
        "import time\nfor _ in range(300):\n"
        "    times(2)\n"
        "    if torch.twice(torch.ones(1)).item() == 4:\n        break\n    time.sleep(0.1)"
    )
    assert session.value("torch.twice(torch.ones(1)).item()") == 4
    session.run("graft.unload('times')")


@pytest.mark.slow
def test_two_saves_in_a_second_are_one(session: Session, folder: Folder) -> None:
    edit(folder, 5)
    time.sleep(0.5)
    edit(folder, 6)
    becomes(session, 6)
    assert session.value("swaps") == ["clipped"]


@pytest.mark.slow
def test_half_written_file_and_rename_are_one_save(session: Session, folder: Folder) -> None:
    """As editors save: a part of the file, the rest a moment later; or another file that is renamed."""
    path = folder.path / "Twice.cpp"
    text = TWICE.replace("2 * factor()", "7")
    with path.open("w") as file:
        file.write(text[:60])
        file.flush()
        time.sleep(0.1)
        file.write(text[60:])
    becomes(session, 7)
    other = folder.path / ".Twice.cpp.swp"
    other.write_text(text.replace("mul(7)", "mul(8)"))
    other.replace(path)
    becomes(session, 8)
    assert session.value("swaps") == ["clipped", "clipped"]
    assert session.said() == ""


def test_a_file_that_is_absent_and_one_with_its_old_time(session: Session, folder: Folder) -> None:
    """As git and tools that restore times write."""
    path = folder.path / "native_functions.yaml"
    text, times = path.read_text(), (folder.path / "Twice.cpp").stat()
    path.unlink()
    edit(folder, 12)
    os.utime(folder.path / "Twice.cpp", ns=(times.st_atime_ns, times.st_mtime_ns))
    time.sleep(1)
    path.write_text(text)
    becomes(session, 12)
    assert session.value("swaps") == ["clipped"] and session.said() == ""


def test_compiles_a_mistake_that_prints_a_line(session: Session, folder: Folder) -> None:
    folder.edit("Twice.cpp", "mul(2", "mule(2")
    said = ""
    for _ in range(600):
        assert session.value("now()") == 2
        if said := session.said():
            break
        time.sleep(0.1)
    assert len(said.splitlines()) == 1 and "Twice.cpp:8" in said and "the old code stays" in said
    time.sleep(1)
    assert session.value("now()") == 2 and session.said() == ""
    edit(folder, 10)
    becomes(session, 10)


AROUND = """
import torch._graft
from torch.fx.experimental.proxy_tensor import make_fx
seen = []
make_fx(lambda x: (seen.append(graft.swap()), x.sin())[1])(torch.ones(1))
torch.vmap(lambda x: (seen.append(graft.swap()), x.sin())[1])(torch.ones(1))
with torch._graft.stock():
    seen.append(graft.swap())
"""


def test_never_in_a_trace_or_in_stock(session: Session, folder: Folder) -> None:
    edit(folder, 11)
    answers, loaded = answers_of(session, "clipped"), session.value("str(graft.loaded()['clipped'].built)")
    unedited = json.dumps({"built": loaded}).encode()
    while not (answer := answers.read_bytes()).startswith(b"{") or answer == unedited:
        time.sleep(0.1)
    session.run(AROUND)
    assert session.value("seen") == [[], [], []]
    becomes(session, 11)


def test_unload_ends_it(session: Session, folder: Folder) -> None:
    watcher = watcher_of(session)
    session.run("graft.unload('clipped')")
    assert not Path(f"/proc/{watcher}").exists()
    session.run("graft.load(folder, watch=True)")
    watcher = watcher_of(session)
    session.run("graft.load(folder)")
    assert watcher_of(session) == watcher
    session.run("graft.load(folder, watch=False)")
    assert not Path(f"/proc/{watcher}").exists()


def test_a_killed_process_leaves_nothing(where: Path, folder: Folder) -> None:
    with Session(where) as other:
        other.run(f"graft.load({str(folder.path)!r}, name='other', watch=True)")
        watcher = watcher_of(other)
        answers = answers_of(other, "other")
        assert answers.exists()
        os.kill(other.process.pid, signal.SIGKILL)
        for _ in range(100):
            if not Path(f"/proc/{watcher}").exists():
                break
            time.sleep(0.1)
        assert not Path(f"/proc/{watcher}").exists()
        assert not answers.exists()
