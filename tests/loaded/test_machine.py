"""What is around a build: compilers that are killed, too many of them, another ninja, names of folders, dates."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clipped import VARIANTS
from helpers import program
from sessions import Folder, Raised, Session, compilers, home_with_objects


@pytest.fixture
def session(where: Path, folder: Folder) -> Iterator[Session]:
    with Session(where, MAX_JOBS="1") as session:
        session.run(f"folder = {str(folder.path)!r}")
        yield session


def test_compiles_never_with_more_compilers_than_max_jobs(session: Session, folder: Folder) -> None:
    folder.make_new("Twice.cpp", "ClipTwice.cpp", "SoftClip.cpp")
    session.send("graft.load(folder)\ntorch.twice(torch.ones(1)).item()")
    most = 0
    assert session.process.stdout
    while not select.select([session.process.stdout], [], [], 0)[0]:
        most = max(most, len(compilers(session.process.pid)))
        time.sleep(0.02)
    assert float(session.answer()) == 2
    assert most == 1


def test_compiles_until_a_compiler_is_killed_which_is_reported(session: Session, folder: Folder) -> None:
    folder.become(VARIANTS["header"])
    folder.make_new("Twice.cpp")
    session.send("graft.load(folder)")
    # Others are only asked for the folders that they search.
    while not (found := compilers(session.process.pid, "Twice.cpp")):
        time.sleep(0.01)
    os.kill(found.pop(), signal.SIGKILL)
    with pytest.raises(Raised) as caught:
        session.answer()
    assert "a compiler was killed" in str(caught.value) and "MAX_JOBS=1" in str(caught.value)
    session.run("graft.load(folder)")
    assert session.value("torch.twice(torch.ones(1)).item()") == 70


def test_folders_with_any_name_and_another_ninja(where: Path) -> None:
    """A notebook's kernel may have another PATH than the environment."""
    broken = program(where / "bin/ninja", "exit 77").parent
    odd = Folder(where / "Ordner mit Ümlaut 'und' \"Quotes\" $x", VARIANTS["header"]).path
    path = os.pathsep.join([str(broken), os.environ["PATH"]])
    with Session(where, GRAFT_HOME=home_with_objects(odd / "the home"), HOME=str(odd), PATH=path) as session:
        session.run(f"graft.load({str(odd)!r}, name='odd')")
        assert session.value("torch.twice(torch.ones(1)).item()") == 70


def test_crash_in_a_child_is_an_exit_code(session: Session, folder: Folder) -> None:
    """As the README says: try a kernel that may crash in a process of its own first."""
    folder.edit("Twice.cpp", "2 * factor()", "*static_cast<volatile int*>(nullptr)")
    session.run(
        "import multiprocessing\n"
        "def tried(x):\n    return torch.twice(x)\n"
        "graft.load(folder)\n"
        "child = multiprocessing.get_context('fork').Process(target=tried, args=(torch.ones(1),))\n"
        "child.start(); child.join()"
    )
    assert session.value("child.exitcode") == -signal.SIGSEGV
    assert session.value("torch.ones(1).item()") == 1
