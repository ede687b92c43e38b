"""What is around a build: compilers that are killed, too many of them, another ninja, names of folders, dates."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import write
from sessions import Raised, Session

YAML = "- func: surrounded(Tensor self) -> Tensor\n  dispatch:\n    CPU: surrounded_cpu\n"
CPP = """#include <ATen/ATen.h>
namespace at::native {
Tensor surrounded_cpu(const Tensor& self) { return self.mul(%s); }
}
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture
def native(where: Path) -> Path:
    return write(where / "surrounded", {"native_functions.yaml": YAML, "Surrounded.cpp": CPP % 2})


@pytest.fixture
def session(where: Path, native: Path) -> Iterator[Session]:
    with Session(where, GRAFT_HOME=str(where / "home"), MAX_JOBS="1") as session:
        session.run(f"folder = {str(native)!r}")
        yield session


def compilers(session: Session) -> list[int]:
    """Return the compilers that run for a session."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = status.read_text().partition(" (")
        except OSError:
            continue
        name, _, fields = rest.rpartition(") ")
        parents[int(pid)] = (name, int(fields.split()[1]))

    def is_below(pid: int) -> bool:
        return pid == session.process.pid or (pid in parents and is_below(parents[pid][1]))

    return [pid for pid, (name, _) in parents.items() if name == "cc1plus" and is_below(pid)]


def test_never_more_compilers_than_max_jobs(session: Session) -> None:
    session.send("graft.load(folder)\ntorch.surrounded(torch.ones(1)).item()")
    most = 0
    assert session.process.stdout
    while not select.select([session.process.stdout], [], [], 0)[0]:
        most = max(most, len(compilers(session)))
        time.sleep(0.02)
    assert float(session.answer()) == 2
    assert most == 1


def reads(compiler: int, source: str) -> bool:
    """Return whether a compiler compiles a source: others are only asked for the folders that they search."""
    try:
        return source.encode() in Path(f"/proc/{compiler}/cmdline").read_bytes()
    except OSError:
        return False


def test_killed_compiler_is_reported_as_killed(session: Session, native: Path) -> None:
    write(native, {"Surrounded.cpp": CPP % 3 + "// edited\n"})
    session.send("graft.load(folder)")
    while not (found := [pid for pid in compilers(session) if reads(pid, "Surrounded.cpp")]):
        time.sleep(0.01)
    os.kill(found[0], signal.SIGKILL)
    with pytest.raises(Raised) as caught:
        session.answer()
    assert "a compiler was killed" in str(caught.value) and "MAX_JOBS=1" in str(caught.value)
    session.run("graft.load(folder)")
    assert session.value("torch.surrounded(torch.ones(1)).item()") == 3


def test_folders_with_any_name_and_another_ninja(where: Path, native: Path) -> None:
    """A notebook's kernel may have another PATH than the environment."""
    broken = write(where / "bin", {"ninja": "#!/bin/sh\nexit 77\n"})
    (broken / "ninja").chmod(0o755)
    texts = {"native_functions.yaml": YAML, "Surrounded.cpp": CPP % 4}
    odd = write(where / "Ordner mit Ümlaut 'und' \"Quotes\" $x", texts)
    path = os.pathsep.join([str(broken), os.environ["PATH"]])
    with Session(where, GRAFT_HOME=str(odd / "the home"), HOME=str(odd), PATH=path) as session:
        session.run(f"graft.load({str(odd)!r}, name='odd')")
        assert session.value("torch.surrounded(torch.ones(1)).item()") == 4


def test_content_decides_not_dates(session: Session, native: Path) -> None:
    source = native / "Surrounded.cpp"
    session.run("graft.load(folder)")
    for factor, when in ((5, time.time() + 1e8), (6, 1e8), (7, 1e8)):
        write(native, {"Surrounded.cpp": CPP % factor})
        os.utime(source, (when, when))
        session.run("graft.load(folder)")
        assert session.value("torch.surrounded(torch.ones(1)).item()") == factor
    before = session.run("graft.loaded()['surrounded'].built")
    os.utime(source, (2e9, 2e9))
    session.run("graft.load(folder)")
    assert session.run("graft.loaded()['surrounded'].built") == before


def test_crash_in_a_child_is_an_exit_code(session: Session, native: Path) -> None:
    """As the README says: try a kernel that may crash in a process of its own first."""
    write(native, {"Surrounded.cpp": CPP % "*static_cast<volatile int*>(nullptr)"})
    session.run(
        "import multiprocessing\n"
        "def tried(x):\n    return torch.surrounded(x)\n"
        "graft.load(folder)\n"
        "child = multiprocessing.get_context('fork').Process(target=tried, args=(torch.ones(1),))\n"
        "child.start(); child.join()"
    )
    assert session.value("child.exitcode") == -signal.SIGSEGV
    assert session.value("torch.ones(1).item()") == 1
