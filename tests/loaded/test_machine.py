"""What is around a build: compilers that are killed, too many of them, another ninja; names, homes, copies."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clipped import VARIANTS, variant
from helpers import program, write
from sessions import Folder, Raised, Session, compilers, home_with_objects, stock_variables


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


def test_library_that_is_opened_again_is_a_copy_until_the_process_ends(where: Path) -> None:
    with Session(where) as session:
        session.load(variant("first"))
        built = Path(session.value("str(graft.loaded()['clipped'].built)"))
        before = sorted(built.iterdir())
        for _ in range(2):
            session.run("graft.unload('clipped')")
            session.run(f"graft.load({str(variant('first'))!r}, build=False)")
        copies = "[line.split()[-1] for line in open('/proc/self/maps') if 'operators-' in line]"
        (folder,) = {Path(each).parent for each in session.value(copies)}
        assert sorted(built.iterdir()) == before and len([*folder.iterdir()]) == 2
        session.process.kill()
        session.process.wait()
    assert folder.is_dir()
    with Session(where) as session:
        session.load(variant("first"))
        assert not folder.exists()  # that process is dead
        session.run("graft.unload('clipped')")
        session.load(variant("first"))
        (own,) = {Path(each).parent for each in session.value(copies)}
        assert session.ended() == 0 and not own.exists()


READ_ONLY = """
import pickle, sys, torch, graft
cpp = "Tensor times(const Tensor& self) {\\n  return self.mul(3);\\n}\\n"
build = {"yes": True, "no": False}[sys.argv[2]]
for _ in range(2):
    graft.load(sys.argv[1], build=build)
    graft.unload("clipped")
inline = graft.load_inline("times(Tensor self) -> Tensor", cpp=cpp, build=build)
pickled = pickle.dumps(inline)
graft.unload("times")
graft.load_cell(cpp, "times(Tensor self) -> Tensor", build=build)
graft.unload("times")
pickle.loads(pickled)
print(torch.times(torch.ones(1)).item())
"""


def test_what_is_built_is_loaded_from_a_home_that_is_read_only(where: Path) -> None:
    home = home_with_objects(where / "read only")
    script = write(where, {"read_only.py": READ_ONLY}) / "read_only.py"
    env = stock_variables(where, GRAFT_HOME=home)
    command = [sys.executable, str(script), str(variant("first"))]
    subprocess.run([*command, "yes"], env=env, check=True)
    mounted = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && ! touch "$0/new" && exec "$@"'
    isolated = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted, home]
    done = subprocess.run([*isolated, *command, "no"], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "3.0"


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/b", "a\0b", "..", ".hidden", 5])
@pytest.mark.parametrize("call", ["load({folder!r}, ", "load_inline('named(Tensor self) -> Tensor', cpp={cpp!r}, "])
def test_name_of_a_load_is_a_name(only: Session, name: object, call: str) -> None:
    cpp = "Tensor named(const Tensor& self) { return self; }"
    called = call.format(folder=str(variant("first")), cpp=cpp)
    said = only.error(f"graft.{called}name={name!r}, build=False)")
    assert said.startswith("graft.core.errors.UsageError: name=") and len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["extra_ldflags", "cpp_sources", "with_cuda"])
def test_arguments_of_cpp_extension_say_what_to_use(only: Session, name: str) -> None:
    said = only.error(f"graft.load_inline('named(Tensor self) -> Tensor', {name}=[])")
    assert said.startswith(f"TypeError: graft.load_inline() has no argument {name}; use `")


def test_no_home_is_one_line(where: Path) -> None:
    env = stock_variables(where, GRAFT_HOME="~nobody-of-this-name/x")
    done = subprocess.run(
        [sys.executable, "-m", "graft", "build"], env=env, capture_output=True, text=True, check=False
    )
    words = "error: GRAFT_HOME=~nobody-of-this-name/x: there is no such user\n"
    assert done.returncode == 2 and done.stderr.startswith(words), done.stderr
