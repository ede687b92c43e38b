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
from graft.core.files import file_lock
from helpers import write
from sessions import Session, stock_variables

SCHEMA = "times(Tensor self) -> Tensor"
CPP = "Tensor times(const Tensor& self) { return self.mul(%s); }"

# What a session needs to load a version, and to know what was built.
SETUP = f"""
import logging
lines = []
class Kept(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("graft").addHandler(Kept())
logging.getLogger("graft").setLevel(logging.INFO)
def load(factor, **options):
    return graft.load_inline({SCHEMA!r}, cpp={CPP!r} % factor, **options)
def built():
    found = [line for line in lines if ": built in " in line]
    lines.clear()
    return len(found)
"""


def begun(where: Path, **variables: str) -> Session:
    session = Session(where, **variables)
    session.run(SETUP)
    return session


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def home(where: Path) -> str:
    """A cache folder of this file."""
    return str(where / "home")


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


def test_six_processes_on_an_empty_home(where: Path) -> None:
    """Three have one text and three another, of one name: each its own value, two builds a round."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(begun(where, GRAFT_HOME=str(where / "empty"))) for _ in range(6)]
        for each in range(10):
            factors = [each * 10 + number % 2 for number in range(6)]
            for session, factor in zip(sessions, factors, strict=True):
                session.send(f"load({factor}); torch.times(torch.ones(1)).item()")
            assert [float(session.answer()) for session in sessions] == factors
            assert sum(session.value("built()") for session in sessions) == 2


def test_fork_during_a_build_that_is_killed(session: Session) -> None:
    """The child that was forked meanwhile does not keep the lock."""
    session.run("import os, threading, time\nload(2)")
    session.run(
        textwrap.dedent("""
        def background():
            global error
            try:
                load("2 + 0 * self.dim()")
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
    session.run("os.environ['GRAFT_LOCK_TIMEOUT'] = '20'\nload(3)")  # an error if the child had the lock
    assert session.value("torch.times(torch.ones(1)).item()") == 3
    assert "waiting" not in session.run("print(lines)")
    session.run("os.kill(child, 9); os.waitpid(child, 0)")


def test_child_of_a_fork_during_a_build_loads(session: Session) -> None:
    """The thread that holds the lock of the process is not in the child."""
    session.run("import os, threading\nload(2)")
    session.run("thread = threading.Thread(target=load, args=(5,))\nthread.start()")
    builder_of(session)
    session.run(
        textwrap.dedent("""
        child = os.fork()
        if not child:
            load(2)
            os._exit(int(torch.times(torch.ones(1)).item()))
        """)
    )
    assert session.value("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == 2
    assert session.value("thread.join()\ntorch.times(torch.ones(1)).item()") == 5


def test_two_threads(session: Session) -> None:
    session.run(
        textwrap.dedent("""
        import threading
        def other(factor):
            graft.load_inline("times_other(Tensor self) -> Tensor", cpp="Tensor times_other(const Tensor& self) "
                              "{ return self.mul(%s); }" % factor)
        threads = [threading.Thread(target=load, args=(7,)), threading.Thread(target=other, args=(8,))]
        [each.start() for each in threads]
        [each.join() for each in threads]
        """)
    )
    assert session.value("[f(torch.ones(1)).item() for f in (torch.times, torch.times_other)]") == [7, 8]


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
    variables = {"GRAFT_HOME": str(where / "no-locks/home"), "LD_PRELOAD": str(library), "TMPDIR": str(where)}
    with begun(where, **variables) as one, begun(where, **variables) as two:
        for session in (one, two):
            session.send("load(2); torch.times(torch.ones(1)).item()")
        assert [float(session.answer()) for session in (one, two)] == [2, 2]
        assert one.value("built()") + two.value("built()") == 1


def test_waiting_has_an_end_and_names_the_process(where: Path, home: str, session: Session) -> None:
    session.run("load(2)")
    work = Path(session.value("str(graft.loaded()['times'].built.parent.parent)"))
    with begun(where, GRAFT_HOME=home, GRAFT_LOCK_TIMEOUT="7") as other, file_lock(work / "lock", ""):
        start = time.monotonic()
        error = other.error("load(11)")
        assert time.monotonic() - start >= 7
        assert f"another build is running here (process {os.getpid()}); waiting" in other.run("print(lines)")
    assert f"another build is running here (process {os.getpid()})" in error and "GRAFT_LOCK_TIMEOUT" in error


def test_what_is_not_built_is_named(where: Path, home: str, session: Session) -> None:
    folder = write(
        where / "shifted",
        {
            "native_functions.yaml": "- func: shifted(Tensor self) -> Tensor\n",
            "Shifted.cpp": "#include <ATen/ATen.h>\nnamespace at::native {\n"
            "Tensor shifted(const Tensor& self) { return self.add(2); }\n}\n",
        },
    )
    session.run(f"folder = {str(folder)!r}")
    error = session.error("graft.load(folder, build=False)")
    assert "graft.MissingError" in error or "MissingError" in error
    assert "not built" in error and f'graft.build("{folder}")' in error
    path = session.value("str(graft.build(folder))")
    assert session.value("hasattr(torch, 'shifted')") is False
    with begun(where, GRAFT_HOME=home, GRAFT_BUILD="0", CXX="/nowhere/g++", PATH="/nowhere") as without:
        without.run(f"graft.load({str(folder)!r})")
        assert without.value("torch.shifted(torch.ones(1)).item(), str(graft.loaded()['shifted'].built)") == (3, path)
    text = (folder / "Shifted.cpp").read_text()
    (folder / "Shifted.cpp").write_text(text.replace("add(2)", "add(3)"))
    with begun(where, GRAFT_HOME=home, GRAFT_BUILD="0") as without:
        assert "GRAFT_BUILD=0" in without.error(f"graft.load({str(folder)!r})")


def test_operators_are_pickled_with_their_sources(where: Path, home: str, session: Session) -> None:
    pickled = session.value("import pickle\npickle.dumps(load(6)).hex()")
    loads = f"import pickle\nops = pickle.loads(bytes.fromhex({pickled!r}))"
    with begun(where, GRAFT_HOME=home) as other:
        other.run(loads)
        assert other.value("ops.times(torch.ones(1)).item(), built()") == (6, 0)
        assert other.run("graft.loaded()['times'].hash") == session.run("graft.loaded()['times'].hash")
        other.run("load(7)")
        other.run(loads)
        assert other.value("ops.times(torch.ones(1)).item()") == 6
    elsewhere = str(where / "elsewhere")
    with begun(where, GRAFT_HOME=elsewhere) as other:
        assert "GRAFT_BUILD=1" in other.error(loads)
    with begun(where, GRAFT_HOME=elsewhere, GRAFT_BUILD="1") as other:
        other.run(loads)
        assert other.value("ops.times(torch.ones(1)).item(), built()") == (6, 1)


RANKS = f"""
import os, sys, graft, torch, torch.distributed as dist
dist.init_process_group("gloo")
graft.load_inline({SCHEMA!r}, cpp={CPP!r} % 9)
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
    env = stock_variables(where, GRAFT_HOME=str(where / "ranks"), OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert "sum 90.0 hashes 1" in done.stdout, done.stdout + done.stderr


POOLS = """
import multiprocessing, os, pickle, sys, warnings
from concurrent.futures import ProcessPoolExecutor
import joblib, torch, graft

def scaled(x):
    return torch.times(x).item()

def by_operators(ops, x):
    return ops.times(x).item()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.times(torch.tensor([float(i)]))

if __name__ == "__main__":
    folder = sys.argv[1]
    ops = graft.load(folder, watch=True)
    x = torch.ones(1)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print("pool", list(pool.map(scaled, [x, x])))
    print("joblib", joblib.Parallel(2)(joblib.delayed(by_operators)(ops, x) for _ in range(4)))
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    print("loader", sum(batch.sum().item() for batch in loader))
"""


def test_pools_and_loaders_beside_watch(where: Path, home: str) -> None:
    """With warnings as errors: Python warns of a fork beside threads."""
    folder = write(
        where / "times",
        {
            "native_functions.yaml": f"- func: {SCHEMA}\n",
            "Times.cpp": f"#include <ATen/ATen.h>\nnamespace at::native {{\n{CPP % 4}\n}}\n",
        },
    )
    program = write(where, {"pools.py": POOLS}) / "pools.py"
    env = stock_variables(where, GRAFT_HOME=home, OMP_NUM_THREADS="1", GRAFT_BUILD="1")
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning:torch", str(program), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["pool [4.0, 4.0]", "joblib [4.0, 4.0, 4.0, 4.0]", "loader 112.0"]
    assert not re.search(r"Warning|Error", done.stderr), done.stderr
