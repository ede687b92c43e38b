"""Where ``graft.load`` is called, and what is in its way: modes, traces, errors, interrupts, machines."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest
from helpers import kernel
from sessions import Folder, Raised, Session

from tests.kit.environments import linked

TEXTS = {
    "native_functions.yaml": "- func: scaled(Tensor self) -> Tensor\n  variants: function, method\n"
    "  dispatch:\n    CompositeExplicitAutograd: scaled\n",
    "derivatives.yaml": "- name: scaled(Tensor self) -> Tensor\n  self: grad * 2\n  result: auto_linear\n",
    "Scaled.cpp": kernel("scaled", "const Tensor& self", "return self.mul(2);"),
}

NATIVE = ("scaled", TEXTS)
BEGINNING = "x = torch.ones(2)\nfrom torch._subclasses import FakeTensorMode\nimport contextlib"
LOADED = "def load(): return graft.load(folder)"


def never_built(folder: Folder, factor: int = 3) -> None:
    """Edit the kernel so that a compiler runs."""
    folder.edit("Scaled.cpp", "mul(2);", f"mul({factor}); // {uuid.uuid4()}")


def descendants(process: int) -> set[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def is_compiler(process: int) -> bool:
    try:
        return b"cc1plus" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


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
def test_mode_does_not_matter(session: Session, folder: Folder, modes: str) -> None:
    folder.edit("derivatives.yaml", "grad * 2", "grad * 4")
    folder.edit("Scaled.cpp", "mul(2)", "mul(4)")
    session.run(f"with {modes}: load()")
    session.run("leaf = x.clone().requires_grad_(); torch.scaled(leaf).sum().backward()")
    assert session.value("[torch.scaled(x).tolist(), leaf.grad.tolist()]") == [[4.0, 4.0], [4.0, 4.0]]
    folder.edit("derivatives.yaml", "grad * 4", "grad * 5")
    session.run(f"with {modes}: load()")
    session.run("leaf = x.clone().requires_grad_(); torch.scaled(leaf).sum().backward()")
    assert session.value("leaf.grad.tolist()") == [5.0, 5.0]
    session.run(f"with {modes}: graft.unload('scaled')")
    assert session.value("hasattr(torch, 'scaled')") is False


@pytest.mark.parametrize(
    "trace",
    [
        "torch.vmap(within)(torch.ones(2, 2))",
        "torch.func.grad(lambda x: within(x).sum())(x)",
        "torch.jit.trace(within, x)",
        "torch.export.export(Within(), (x,))",
        "torch.fx.experimental.proxy_tensor.make_fx(within)(x)",
    ],
)
@pytest.mark.parametrize("what", ["load()", "graft.unload('scaled')"])
def test_trace_is_one_line(session: Session, folder: Folder, trace: str, what: str) -> None:
    session.run(
        "import torch.fx.experimental.proxy_tensor\n"
        f"def within(x):\n    {what}\n    return torch.scaled(x)\n"
        "class Within(torch.nn.Module):\n    def forward(self, x): return within(x)"
    )
    folder.edit("Scaled.cpp", "mul(2)", "mul(4)")
    said = session.error(trace)
    assert "graft." in said and "before" in said, said
    assert session.value("torch.scaled(x).tolist()") == [2.0, 2.0]


def test_compiled_function_breaks_its_graph(session: Session, folder: Folder) -> None:
    session.run(
        "graphs = []\n"
        "def counted(graph, inputs):\n    graphs.append(graph)\n    return graph.forward\n"
        "@torch.compile(backend=counted)\n"
        "def compiled(x):\n    y = torch.scaled(x)\n    load()\n    return y, torch.scaled(x)"
    )
    folder.edit("Scaled.cpp", "mul(2)", "mul(4)")
    assert session.value("[each.tolist() for each in compiled(x)]") == [[2.0, 2.0], [4.0, 4.0]]
    assert session.value("len(graphs)") == 2
    assert session.value("[each.tolist() for each in compiled(x)]") == [[4.0, 4.0], [4.0, 4.0]]


def test_errors_are_objects_and_nothing_changes(session: Session, folder: Folder) -> None:
    session.run("import sys")
    edits = {
        ("Scaled.cpp", "self.mul(2)", "self.mull(2)"): ("Scaled.cpp", 8),
        ("native_functions.yaml", "-> Tensor\n", "-> Tensr\n"): ("native_functions.yaml", 1),
        ("derivatives.yaml", "grad * 2", "grad * two"): ("derivatives.yaml", 2),
    }
    for edit, place in edits.items():
        folder.restore()
        folder.edit(*edit)
        assert "BuildError" in session.error("load()"), edit
        places = session.value("[(each.file.name, each.line) for each in sys.last_value.findings]")
        assert place in places, (edit, places)
        assert session.value(f"str(sys.last_value.findings[0].file).startswith({str(folder.path)!r})")
        assert session.value("[torch.scaled(x).tolist(), list(graft.loaded())]") == [[2.0, 2.0], ["scaled"]]
    folder.restore()
    folder.add("python/_decomp/decompositions.py", "raise ValueError('in the text')\n")
    assert "in the text" in session.error("load()")
    assert session.value("torch.scaled(x).tolist()") == [2.0, 2.0]


def test_compilers_message_in_another_language_and_encoding(where: Path, folder: Folder) -> None:
    folder.restore()
    with Session(where, LANG="de_DE.ISO-8859-1", LC_ALL="", LANGUAGE="de") as session:
        session.run("import sys")
        folder.edit("Scaled.cpp", "self.mul(2)", "self.mull(2) /* äöü */")
        assert "BuildError" in session.error(f"graft.load({str(folder.path)!r})")
        assert session.value("[(each.file.name, each.line) for each in sys.last_value.findings][:1]") == [
            ("Scaled.cpp", 8)
        ]


def test_interrupt_ends_the_compilers_and_nothing_else(session: Session, folder: Folder) -> None:
    never_built(folder)
    session.send("load()")
    deadline = time.monotonic() + 60
    while not (running := {each for each in descendants(session.process.pid) if is_compiler(each)}):
        assert time.monotonic() < deadline, "no compiler was started"
        time.sleep(0.02)
    os.kill(session.process.pid, signal.SIGINT)
    with pytest.raises(Raised, match="KeyboardInterrupt"):
        session.answer()
    assert not [each for each in running if is_compiler(each)]
    assert not [each for each in descendants(session.process.pid) if is_compiler(each)]
    assert session.value("torch.scaled(x).tolist()") == [2.0, 2.0]
    session.run("load()")
    assert session.value("torch.scaled(x).tolist()") == [3.0, 3.0]


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.3, 0.5, 0.8])
def test_after_an_interrupt_at_any_moment_an_operator_is_whole(session: Session, folder: Folder, delay: float) -> None:
    folder.edit("derivatives.yaml", "grad * 2", "grad * 4")
    folder.edit("Scaled.cpp", "mul(2)", "mul(4)")
    session.run("load()")
    folder.restore()
    session.run("import _thread, threading")
    # What is built already takes less than a second to load.
    said = session.attempt(
        f"threading.Timer({delay}, _thread.interrupt_main).start()\nload()\nimport time; time.sleep(1)"
    )
    assert "KeyboardInterrupt" in said
    session.run("leaf = x.clone().requires_grad_(); torch.scaled(leaf).sum().backward()")
    assert session.value("[torch.scaled(x).tolist(), leaf.grad.tolist()]") in ([[2.0, 2.0]] * 2, [[4.0, 4.0]] * 2)
    session.run("load()\nleaf = x.clone().requires_grad_(); torch.scaled(leaf).sum().backward()")
    assert session.value("[torch.scaled(x).tolist(), leaf.grad.tolist()]") == [[2.0, 2.0]] * 2


def without_compiler(where: Path) -> str:
    """Return a folder for PATH, without a compiler."""
    (where / "bin").mkdir(exist_ok=True)
    for name in ("sh", "ls", "uname"):
        (where / "bin" / name).unlink(missing_ok=True)
        (where / "bin" / name).symlink_to(str(shutil.which(name)))
    return str(where / "bin")


def test_without_a_compiler_what_is_built_loads(session: Session, folder: Folder, where: Path) -> None:
    code = f"graft.load({str(folder.path)!r})"
    with Session(where, PATH=without_compiler(where), CXX="", CC="") as bare:
        bare.run(code)
        assert bare.value("torch.scaled(torch.ones(2)).tolist()") == [2.0, 2.0]
        never_built(folder)
        said = bare.error(code)
        assert said.startswith("graft.core.errors.") and "g++" in said
        assert len(said.splitlines()) <= 3
        assert bare.value("torch.scaled(torch.ones(2)).tolist()") == [2.0, 2.0]


@pytest.mark.parametrize("place", ["file/home", "/proc/graft", "/dev/null/home"])
def test_folder_that_cannot_be_written_is_one_line(where: Path, folder: Folder, place: str) -> None:
    folder.restore()
    (where / "file").write_text("")
    with Session(where, GRAFT_HOME=str(where / place)) as session:
        for code in (
            f"graft.load({str(folder.path)!r})",
            "graft.load_inline('op_of(Tensor self) -> Tensor', cpp='...')",
        ):
            said = session.error(code)
            assert said.startswith("graft.core.errors."), said
            assert str(where / place) in said and len(said.splitlines()) <= 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission_is_one_line(where: Path, folder: Folder) -> None:
    folder.restore()
    home = where / "locked"
    home.mkdir(mode=0o500)
    with Session(where, GRAFT_HOME=str(home)) as session:
        said = session.error(f"graft.load({str(folder.path)!r})")
        assert said.startswith("graft.core.errors.") and str(home) in said


def test_torch_that_was_upgraded_on_disk_asks_for_a_restart(where: Path, folder: Folder) -> None:
    folder.restore()
    copy = where / "torch-copy"
    shutil.copytree(os.environ["GRAFT_STOCK"], copy, symlinks=True, copy_function=linked)
    paths = os.pathsep.join([str(copy), *sys.path])
    with Session(where, PYTHONPATH=paths) as session:
        assert session.value("torch.__file__").startswith(str(copy))
        version = copy / "torch/version.py"
        text = version.read_text()
        version.unlink()
        version.write_text(text.replace("git_version = '", "git_version = '0"))
        said = session.error(f"graft.load({str(folder.path)!r})")
        assert "UsageError" in said and "restart" in said
    shutil.rmtree(copy)


def test_two_processes_load_the_same_folder_at_once(where: Path, folder: Folder) -> None:
    folder.restore()
    never_built(folder, 6)
    folder.edit("derivatives.yaml", "grad * 2", "grad * 6")
    with Session(where) as one, Session(where) as other:
        for session in (one, other):
            session.send(f"graft.load({str(folder.path)!r})\ntorch.scaled(torch.ones(2)).tolist()")
        assert [session.answer() for session in (one, other)] == ["[6.0, 6.0]"] * 2
