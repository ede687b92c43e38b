"""Several processes, and processes that may not build."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from clipped import INLINE, VARIANTS, variant
from graft.core.files import file_lock
from helpers import write
from sessions import Folder, Session, home_with_objects, stock_variables

# What a session needs to know what was built.
SETUP = f"""
import logging
lines = []
class Kept(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("graft").addHandler(Kept())
logging.getLogger("graft").setLevel(logging.INFO)
def built():
    found = [line for line in lines if ": built in " in line]
    lines.clear()
    return len(found)
{INLINE}
"""


def begun(where: Path, **variables: str) -> Session:
    session = Session(where, **variables)
    session.run(SETUP)
    return session


@pytest.fixture(scope="module")
def home(where: Path) -> str:
    """A cache folder of this file."""
    return home_with_objects(where / "home")


@pytest.fixture
def session(where: Path, home: str) -> Iterator[Session]:
    with begun(where, GRAFT_HOME=home) as session:
        yield session


def builder_of(session: Session) -> int:
    """Return the process that builds for a session, once it holds the lock."""
    for _ in range(3000):
        children = subprocess.run(
            ["pgrep", "-P", str(session.process.pid), "-f", "graft.session.builder"], capture_output=True, text=True
        ).stdout.split()
        # ninja's parent has the lock.
        if children and subprocess.run(["pgrep", "-P", children[0]], capture_output=True).stdout:
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError("no process builds")


@pytest.mark.slow
def test_six_processes_on_an_empty_home(where: Path) -> None:
    """Three have one text and three another, of one name: each its own value, two builds a round."""
    home = home_with_objects(where / "empty")
    with ExitStack() as stack:
        sessions = [stack.enter_context(begun(where, GRAFT_HOME=home)) for _ in range(6)]
        for each in range(1, 4):
            factors = [each * 10 + number % 2 for number in range(6)]
            for session, factor in zip(sessions, factors, strict=True):
                session.send(f"times({factor}); torch.times(torch.ones(1)).item()")
            assert [float(session.answer()) for session in sessions] == factors
            assert sum(session.value("built()") for session in sessions) == 2


@pytest.mark.slow
def test_fork_during_a_build_that_is_killed(session: Session) -> None:
    """The child that was forked meanwhile does not keep the lock."""
    session.run("import os, threading, time\ntimes(2)")
    session.run(
        textwrap.dedent("""
        def background():
            global error
            try:
                times("2 + 0 * self.dim()")
            except graft.GraftError as raised:
                error = str(raised)
        thread = threading.Thread(target=background)
        thread.start()
        """)
    )
    builder = builder_of(session)
    session.run("child = os.fork()\nif not child:\n    time.sleep(1000)")
    os.kill(builder, signal.SIGKILL)
    said = session.run("thread.join(); print(error)")
    assert said.startswith("the process that builds was killed") and "MAX_JOBS=1" in said
    session.run("os.environ['GRAFT_LOCK_TIMEOUT'] = '20'\ntimes(3)")  # an error if the child had the lock
    assert session.value("torch.times(torch.ones(1)).item()") == 3
    assert "waiting" not in session.run("print(lines)")
    session.run("os.kill(child, 9); os.waitpid(child, 0)")


@pytest.mark.slow
def test_child_of_a_fork_during_a_build_loads(session: Session) -> None:
    """The thread that holds the lock of the process is not in the child."""
    session.run("import os, threading\ntimes(2)")
    session.run("thread = threading.Thread(target=times, args=(5,))\nthread.start()")
    builder_of(session)
    session.run(
        textwrap.dedent("""
        child = os.fork()
        if not child:
            times(2)
            os._exit(int(torch.times(torch.ones(1)).item()))
        """)
    )
    assert session.value("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == 2
    assert session.value("thread.join()\ntorch.times(torch.ones(1)).item()") == 5


# Below the folder no-locks, flock fails as on such a file system.
NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int flock(int file, int operation) {
  char link[64], path[4096] = {0};
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/no-locks/")) {
    errno = ENOLCK;
    return -1;
  }
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, operation);
}
"""


def test_file_system_without_locks(where: Path) -> None:
    """Two processes with one text: one builds. Their lock is where temporary files are."""
    source, library = write(where, {"no_locks.c": NO_LOCKS}) / "no_locks.c", where / "no_locks.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    variables = {
        "GRAFT_HOME": home_with_objects(where / "no-locks/home"),
        "LD_PRELOAD": str(library),
        "TMPDIR": str(where),
    }
    with begun(where, **variables) as one, begun(where, **variables) as two:
        for session in (one, two):
            session.send("times(2); torch.times(torch.ones(1)).item()")
        assert [float(session.answer()) for session in (one, two)] == [2, 2]
        assert one.value("built()") + two.value("built()") == 1


def test_waiting_has_an_end_and_names_the_process(where: Path, home: str, session: Session) -> None:
    session.run("times(2)")
    work = Path(session.value("str(graft.loaded()['times'].built.parent.parent)"))
    with begun(where, GRAFT_HOME=home, GRAFT_LOCK_TIMEOUT="7") as other, file_lock(work / "lock", ""):
        start = time.monotonic()
        error = other.error("times(11)")
        assert time.monotonic() - start >= 7
        assert f"another build is running here (process {os.getpid()}); waiting" in other.run("print(lines)")
    assert f"another build is running here (process {os.getpid()})" in error and "GRAFT_LOCK_TIMEOUT" in error


def test_what_is_not_built_is_named(where: Path, home: str, folder: Folder, session: Session) -> None:
    session.run(f"folder = {str(folder.path)!r}")
    error = session.error("graft.load(folder, build=False)")
    assert "graft.MissingError" in error or "MissingError" in error
    assert "not built" in error and f'graft.build("{folder.path}")' in error
    path = session.value("str(graft.build(folder))")
    assert session.value("hasattr(torch, 'twice')") is False
    code = f"graft.load({str(folder.path)!r})"
    with begun(where, GRAFT_HOME=home, GRAFT_BUILD="0", CXX="/nowhere/g++", PATH="/nowhere") as without:
        without.run(code)
        assert without.value("torch.twice(torch.ones(1)).item(), str(graft.loaded()['clipped'].built)") == (2, path)
    folder.become(VARIANTS["header"])
    with begun(where, GRAFT_HOME=home, GRAFT_BUILD="0") as without:
        assert "GRAFT_BUILD=0" in without.error(code)


def test_operators_are_pickled_with_their_sources(where: Path, home: str, session: Session) -> None:
    pickled = session.value("import pickle\npickle.dumps(times(6)).hex()")
    loads = f"import pickle\nops = pickle.loads(bytes.fromhex({pickled!r}))"
    with begun(where, GRAFT_HOME=home) as other:
        other.run(loads)
        assert other.value("ops.times(torch.ones(1)).item(), built()") == (6, 0)
        assert other.run("graft.loaded()['times'].hash") == session.run("graft.loaded()['times'].hash")
        other.run("times(7)")
        other.run(loads)
        assert other.value("ops.times(torch.ones(1)).item()") == 6
    elsewhere = home_with_objects(where / "elsewhere")
    with begun(where, GRAFT_HOME=elsewhere) as other:
        assert "GRAFT_BUILD=1" in other.error(loads)
    with begun(where, GRAFT_HOME=elsewhere, GRAFT_BUILD="1") as other:
        other.run(loads)
        assert other.value("ops.times(torch.ones(1)).item(), built()") == (6, 1)


RANKS = f"""
import os, sys, graft, torch, torch.distributed as dist
dist.init_process_group("gloo")
{INLINE}
times(9)
hashes = [None] * dist.get_world_size()
dist.all_gather_object(hashes, graft.loaded()["times"].hash)
x = torch.times(torch.ones(1)) * (dist.get_rank() + 1)
dist.all_reduce(x)
if dist.get_rank() == 0:
    print("sum", x.item(), "hashes", len(set(hashes)))
dist.destroy_process_group()
"""


def test_four_ranks(where: Path) -> None:
    program = write(where, {"ranks.py": RANKS}) / "ranks.py"
    env = stock_variables(where, GRAFT_HOME=home_with_objects(where / "ranks"), OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert "sum 90.0 hashes 1" in done.stdout, done.stdout + done.stderr


POOLS = """
import multiprocessing, os, pickle, sys, warnings
from concurrent.futures import ProcessPoolExecutor
import joblib, torch, graft

def doubled(x):
    return torch.twice(x).item()

def by_operators(ops, x):
    return ops.twice(x).item()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.twice(torch.tensor([float(i)]))

if __name__ == "__main__":
    folder = sys.argv[1]
    ops = graft.load(folder, watch=True)
    x = torch.ones(1)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print("pool", list(pool.map(doubled, [x, x])))
    print("joblib", joblib.Parallel(2)(joblib.delayed(by_operators)(ops, x) for _ in range(4)))
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    print("loader", sum(batch.sum().item() for batch in loader))
"""


def test_pools_and_loaders_beside_watch(where: Path) -> None:
    """With warnings as errors: Python warns of a fork beside threads."""
    program = write(where, {"pools.py": POOLS}) / "pools.py"
    env = stock_variables(where, OMP_NUM_THREADS="1", GRAFT_BUILD="1")
    ignored = ["-W", "error", "-W", "ignore::DeprecationWarning:torch"]
    command = [sys.executable, *ignored, str(program), str(variant("first"))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["pool [2.0, 2.0]", "joblib [2.0, 2.0, 2.0, 2.0]", "loader 56.0"]
    assert not re.search(r"Warning|Error", done.stderr), done.stderr
