"""``graft.load(folder, watch=True)``: each save is built in the background, and loaded at the next ``graft.swap``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from sessions import Folder, Session

CPP = """#include <ATen/ATen.h>
namespace at::native {
Tensor watched(const Tensor& self) {
  return self.mul(2);
}
}
"""
NATIVE = ("watched", {"native_functions.yaml": "- func: watched(Tensor self) -> Tensor\n", "Watched.cpp": CPP})
LOADED = """
ops = graft.load(folder, watch=True)
swaps = []
def now():
    swaps.extend(graft.swap())
    return torch.watched(torch.ones(1)).item()
"""


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
    folder.edit("Watched.cpp", "mul(2)", "mul(3)")
    time.sleep(1)
    assert session.value("torch.watched(torch.ones(1)).item()") == 2  # nothing happens in the middle of a program
    becomes(session, 3)
    assert session.value("swaps") == ["watched"]
    assert session.value("graft.swap()") == []


def test_the_next_load_of_anything_swaps(session: Session, folder: Folder) -> None:
    folder.edit("Watched.cpp", "mul(2)", "mul(4)")
    session.run(
        "import time\nfor _ in range(300):\n"
        "    graft.load_inline('beside(Tensor self) -> Tensor', cpp='Tensor beside(const Tensor& self)"
        " { return self.clone(); }')\n"
        "    if torch.watched(torch.ones(1)).item() == 4:\n        break\n    time.sleep(0.1)"
    )
    assert session.value("torch.watched(torch.ones(1)).item()") == 4
    session.run("graft.unload('beside')")


def test_two_saves_in_a_second_are_one(session: Session, folder: Folder) -> None:
    folder.edit("Watched.cpp", "mul(2)", "mul(5)")
    time.sleep(0.5)
    folder.edit("Watched.cpp", "mul(5)", "mul(6)")
    becomes(session, 6)
    assert session.value("swaps") == ["watched"]


def test_half_written_file_and_rename_are_one_save(session: Session, folder: Folder) -> None:
    """As editors save: a part of the file, the rest a moment later; or another file that is renamed."""
    path = folder.path / "Watched.cpp"
    text = CPP.replace("mul(2)", "mul(7)")
    with path.open("w") as file:
        file.write(text[:60])
        file.flush()
        time.sleep(0.1)
        file.write(text[60:])
    becomes(session, 7)
    other = folder.path / ".Watched.cpp.swp"
    other.write_text(text.replace("mul(7)", "mul(8)"))
    other.replace(path)
    becomes(session, 8)
    assert session.value("swaps") == ["watched", "watched"]
    assert session.said() == ""


def test_git_checkout_is_one_save(session: Session, folder: Folder) -> None:
    git = ["git", "-C", str(folder.path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "two"], ["checkout", "-qb", "nine"]):
        subprocess.run([*git, *command], check=True)
    folder.edit("Watched.cpp", "mul(2)", "mul(two) + 1")
    folder.edit("Watched.cpp", "#include <ATen/ATen.h>", '#include <ATen/ATen.h>\n#include "two.h"')
    folder.add("two.h", "constexpr int two = 8;\n")
    becomes(session, 9)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "nine"], check=True)
    subprocess.run([*git, "checkout", "-q", "master"], check=True)
    becomes(session, 2)
    subprocess.run([*git, "checkout", "-q", "nine"], check=True)
    becomes(session, 9)
    assert session.value("swaps") == ["watched"] * 3
    assert session.said() == ""


def test_what_does_not_build_prints_a_line(session: Session, folder: Folder) -> None:
    folder.edit("Watched.cpp", "mul(2)", "mule(2)")
    said = ""
    for _ in range(600):
        assert session.value("now()") == 2
        if said := session.said():
            break
        time.sleep(0.1)
    assert len(said.splitlines()) == 1 and "Watched.cpp:4" in said and "the old code stays" in said
    time.sleep(1)
    assert session.value("now()") == 2 and session.said() == ""
    folder.edit("Watched.cpp", "mule(2)", "mul(10)")
    becomes(session, 10)


@pytest.mark.parametrize(
    "around",
    [
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "make_fx(lambda x: (seen.append(graft.swap()), x.sin())[1])(torch.ones(1))",
        "torch.vmap(lambda x: (seen.append(graft.swap()), x.sin())[1])(torch.ones(1))",
        "with torch._graft.stock():\n    seen.append(graft.swap())",
    ],
    ids=["make_fx", "vmap", "stock"],
)
def test_never_in_a_trace_or_in_stock(around: str, session: Session, folder: Folder) -> None:
    session.run("import torch._graft")
    folder.edit("Watched.cpp", "mul(2)", "mul(11)")
    session.run("seen = []")
    answers, loaded = answers_of(session, "watched"), session.value("str(graft.loaded()['watched'].built)")
    unedited = json.dumps({"built": loaded}).encode()
    while not (answer := answers.read_bytes()).startswith(b"{") or answer == unedited:
        time.sleep(0.1)
    session.run(around)
    assert session.value("seen") == [[]]
    becomes(session, 11)


def test_unload_ends_it(session: Session, folder: Folder) -> None:
    watcher = watcher_of(session)
    session.run("graft.unload('watched')")
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
