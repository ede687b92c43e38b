"""Where ``graft.load`` is called, and what is in its way: modes, traces, errors, interrupts, machines."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from clipped import VARIANTS, variant
from sessions import Folder, Raised, Session, compilers

from tests.kit.environments import linked

BEGINNING = "x = torch.ones(2)\nfrom torch._subclasses import FakeTensorMode\nimport contextlib"

# What `torch.twice` gives for ones, and its gradient.
RESULT = """
leaf = x.clone().requires_grad_()
torch.twice(leaf).sum().backward()
[torch.twice(x)[0].item(), leaf.grad[0].item()]
"""


@pytest.mark.parametrize(
    "modes",
    [
        "torch.device('meta')",
        "FakeTensorMode()",
        "torch.inference_mode()",
        "torch.no_grad()",
        "torch.autocast('cpu', torch.bfloat16)",
        "torch.overrides.TorchFunctionMode()",
        "torch.utils._python_dispatch.TorchDispatchMode()",
    ],
)
def test_mode_does_not_matter(session: Session, modes: str) -> None:
    session.run(f"with {modes}: load('header')")
    assert session.value(RESULT) == [70.0, 2.0]
    session.run(f"with {modes}: load('formula')")
    assert session.value(RESULT) == [2.0, 200.0]
    session.run(f"with {modes}: graft.unload('clipped')")
    assert session.value("hasattr(torch, 'twice')") is False


@pytest.mark.parametrize(
    "trace",
    [
        "torch.vmap(within)(torch.ones(2, 2))",
        "torch.func.grad(lambda x: within(x).sum())(x)",
        "torch.jit.trace(within, x)",
        "torch.export.export(Within(), (x,))",
        "torch.fx.experimental.proxy_tensor.make_fx(within)(x)",
        "torch.compile(within, backend='eager', fullgraph=True)(x)",
    ],
)
@pytest.mark.parametrize("what", ["load('header')", "graft.unload('clipped')"])
def test_trace_is_one_line(session: Session, trace: str, what: str) -> None:
    session.run(
        "import torch.fx.experimental.proxy_tensor\n"
        f"def within(x):\n    {what}\n    return torch.twice(x)\n"
        "class Within(torch.nn.Module):\n    def forward(self, x): return within(x)"
    )
    said = session.error(trace)
    assert "graft." in said and "before" in said, said
    assert session.value("torch.twice(x).tolist()") == [2.0, 2.0]


def test_compiled_function_breaks_its_graph(session: Session) -> None:
    session.run(
        "graphs = []\n"
        "def counted(graph, inputs):\n    graphs.append(graph)\n    return graph.forward\n"
        "@torch.compile(backend=counted)\n"
        "def compiled(x):\n    y = torch.twice(x)\n    load('header')\n    return y, torch.twice(x)"
    )
    assert session.value("[each.tolist() for each in compiled(x)]") == [[2.0, 2.0], [70.0, 70.0]]
    assert session.value("len(graphs)") == 2
    assert session.value("[each.tolist() for each in compiled(x)]") == [[70.0, 70.0], [70.0, 70.0]]


def test_compiles_what_the_sources_were_when_it_was_called(session: Session, folder: Folder) -> None:
    """A save while it builds is for the next load."""
    folder.edit("Twice.cpp", "mul(2", "mul(7")
    path = folder.path / "Twice.cpp"
    session.run(
        "from graft.session import builder\n"
        "started = builder._started\n"
        "def saved(said):\n"
        f"    open({str(path)!r}, 'a').write('#error saved\\n')\n"
        "    return started(said)\n"
        "builder._started = saved"
    )
    try:
        session.load(folder.path)
    finally:
        session.run("builder._started = started")
    assert session.value("torch.twice(x)[0].item()") == 7
    assert "#error saved" in session.error(f"graft.load({str(folder.path)!r})")


def test_compiles_mistakes_which_are_objects_and_change_nothing(session: Session, folder: Folder) -> None:
    session.run(f"import sys\nfolder = {str(folder.path)!r}")
    edits = {
        ("Twice.cpp", "self.mul(2", "self.mull(2"): ("Twice.cpp", 8),
        ("native_functions.yaml", "-> Tensor\n", "-> Tensr\n"): ("native_functions.yaml", 1),
        ("derivatives.yaml", "2 * grad", "two * grad"): ("derivatives.yaml", 2),
    }
    for edit, place in edits.items():
        folder.become(VARIANTS["first"])
        folder.edit(*edit)
        assert "BuildError" in session.error("graft.load(folder)"), edit
        places = session.value("[(each.file.name, each.line) for each in sys.last_value.findings]")
        assert place in places, (edit, places)
        assert session.value("str(sys.last_value.findings[0].file).startswith(folder)")
        assert session.value("[torch.twice(x).tolist(), list(graft.loaded())]") == [[2.0, 2.0], ["clipped"]]
    folder.become(VARIANTS["header"])
    folder.add("python/_decomp/decompositions.py", "raise ValueError('in the text')\n")
    assert "in the text" in session.error("graft.load(folder)")
    assert session.value("torch.twice(x).tolist()") == [2.0, 2.0]


def test_compiles_a_mistake_whose_message_is_in_another_language_and_encoding(where: Path, folder: Folder) -> None:
    with Session(where, LANG="de_DE.ISO-8859-1", LC_ALL="", LANGUAGE="de") as session:
        session.run("import sys")
        folder.edit("Twice.cpp", "self.mul(2", "self.mull(2 /* äöü */")
        assert "BuildError" in session.error(f"graft.load({str(folder.path)!r})")
        assert session.value("[(each.file.name, each.line) for each in sys.last_value.findings][:1]") == [
            ("Twice.cpp", 8)
        ]


def test_compiles_until_an_interrupt_which_ends_the_compilers_and_nothing_else(
    session: Session, folder: Folder
) -> None:
    folder.edit("Twice.cpp", "2 * factor()", "6")
    folder.make_new("Twice.cpp")
    session.send(f"graft.load({str(folder.path)!r})")
    deadline = time.monotonic() + 60
    while not (running := compilers(session.process.pid)):
        assert time.monotonic() < deadline, "no compiler was started"
        time.sleep(0.02)
    os.kill(session.process.pid, signal.SIGINT)
    with pytest.raises(Raised, match="KeyboardInterrupt"):
        session.answer()
    assert not compilers(session.process.pid) and not running & compilers(1)
    assert session.value("torch.twice(x).tolist()") == [2.0, 2.0]
    session.run(f"graft.load({str(folder.path)!r})")
    assert session.value("torch.twice(x).tolist()") == [6.0, 6.0]


@pytest.mark.slow
def test_compiles_after_the_compilers_of_a_killed_group_have_ended(where: Path, folder: Folder) -> None:
    """As Jupyter kills a kernel; compilers have groups of their own."""
    folder.make_new("Twice.cpp")
    deadline = time.monotonic() + 300
    with Session(where) as killed:
        killed.send(f"graft.load({str(folder.path)!r})")
        while not (left := compilers(killed.process.pid, "Twice.cpp")):
            assert time.monotonic() < deadline, "no compiler was started"
            time.sleep(0.01)
        for each in left:
            os.kill(each, signal.SIGSTOP)
        os.killpg(killed.process.pid, signal.SIGKILL)
    folder.edit("Twice.cpp", "2 * factor()", "6")
    with Session(where) as session:
        session.send(f"graft.load({str(folder.path)!r})")
        while "or compilers that it has left); waiting for it to end" not in (said := session.said(keep=True)):
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        for each in left:
            os.kill(each, signal.SIGCONT)
        session.answer()
        assert session.value("torch.twice(torch.ones(2)).tolist()") == [6.0, 6.0]


@pytest.mark.parametrize("delay", [0.02, 0.2])
def test_after_an_interrupt_at_any_moment_an_operator_is_whole(session: Session, delay: float) -> None:
    versions = [2.0, 2.0], [70.0, 2.0]
    session.run("load('header')\nimport _thread, threading")
    # What is built already takes less than a second to load.
    said = session.attempt(
        f"threading.Timer({delay}, _thread.interrupt_main).start()\nload('first')\nimport time; time.sleep(1)"
    )
    assert "KeyboardInterrupt" in said
    assert session.value(RESULT) in versions
    assert session.value(f"load('first')\n{RESULT}") == versions[0]


@pytest.mark.parametrize("place", ["file/home", "/proc/graft"])
def test_folder_that_cannot_be_written_is_one_line(where: Path, place: str) -> None:
    (where / "file").write_text("")
    with Session(where, GRAFT_HOME=str(where / place)) as session:
        for code in (
            f"graft.load({str(variant('first'))!r})",
            "graft.load_inline('op_of(Tensor self) -> Tensor', cpp='...')",
        ):
            said = session.error(code)
            assert said.startswith("graft.core.errors."), said
            assert str(where / place) in said and len(said.splitlines()) <= 3


def test_torch_that_was_upgraded_on_disk_asks_for_a_restart(where: Path) -> None:
    copy = where / "torch-copy"
    shutil.copytree(os.environ["GRAFT_STOCK"], copy, symlinks=True, copy_function=linked)
    paths = os.pathsep.join([str(copy), *sys.path])
    with Session(where, PYTHONPATH=paths) as session:
        assert session.value("torch.__file__").startswith(str(copy))
        version = copy / "torch/version.py"
        text = version.read_text()
        version.unlink()
        version.write_text(text.replace("git_version = '", "git_version = '0"))
        said = session.error(f"graft.load({str(variant('first'))!r})")
        assert "UsageError" in said and "restart" in said
    shutil.rmtree(copy)
