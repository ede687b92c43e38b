"""``make develop``: add operators to the installed torch, and remove them again."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from facts import FOLDERS, SETUP, texts_of
from helpers import write
from users import AS_EDITED, AS_WRITTEN, CLIP, CLIP_EDITED, CLIPPED, Environment, make, write_clip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("develop") / "ops"


@pytest.fixture
def folder(place: Path) -> Path:
    """The same folder for each test, so that nothing is compiled twice."""
    return write_clip(place)


@pytest.fixture
def developed(environment: Environment, folder: Path) -> Environment:
    """The environment with the operator."""
    make("develop", environment, "--native", folder)
    return environment


def save(folder: Path, text: str = CLIP_EDITED) -> None:
    """Save the kernel."""
    (folder / "SoftClip.cpp").write_text(text)


def test_from_an_empty_folder_to_the_operator_and_back(stock: Environment, folder: Path) -> None:
    """Files of the installed torch are never written to."""
    before = stock.content()
    make("develop", stock, "--native", folder)
    assert stock.print(CLIPPED) == AS_WRITTEN
    assert stock.print("torch.ones(2, requires_grad=True).soft_clip(2).sum().grad_fn is not None") == "True"
    stock.print("torch.compile(torch.soft_clip)(torch.ones(2)).tolist()")
    after = stock.content()
    assert {name: after[name] for name in before} == before
    added = {name.split("/site-packages/")[1].split("/")[0] for name in after.keys() - before.keys()}
    assert added == {"torch.graft", "torch_graft.pth"}
    save(folder)
    make("develop", stock, "--native", folder)
    assert stock.print(CLIPPED) == AS_EDITED
    make("undevelop", stock)
    assert stock.print("hasattr(torch, 'soft_clip')") == "False"
    assert stock.content() == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_compiled_code_follows_each_file(stock: Environment, tmp_path: Path, kind: str) -> None:
    """In new processes, which have the disk caches of those before. In CI, tests/loaded has the same folders."""
    _, expression, is_slope = FOLDERS[kind]
    functions = f"{SETUP}\ndef function(x): return {expression}"
    code = f"import torch\n{functions}\nfor each in (torch.compile(function), function): print(shown(each, {is_slope}))"
    folder, found = tmp_path / "facts", []
    try:
        for number in (3, 5, 3):
            write(folder, texts_of(kind, number))
            make("develop", stock, "--native", folder)
            compiled, eager = map(
                ast.literal_eval, stock.run(code, TORCHINDUCTOR_CACHE_DIR=f"{tmp_path}/inductor").stdout.splitlines()
            )
            assert compiled == (eager if is_slope else [number * 2.0] * 2)
            found.append(compiled)
    finally:
        make("undevelop", stock)
    assert found[0] == found[2] != found[1]


def test_what_is_there_is_listed(developed: Environment, folder: Path) -> None:
    about = developed.about()
    assert "make develop" in about
    assert f"{folder}: unchanged since" in about
    (folder / "build").mkdir(exist_ok=True)
    (folder / "build/object.cpp").write_text("not read")
    assert f"{folder}: unchanged since" in developed.run("from torch import _graft; _graft.main()").stdout
    save(folder)
    about = developed.about()
    assert f"{folder}: changed since: SoftClip.cpp" in about
    assert "nothing changed" not in make("develop", developed, "--native", folder)
    assert "nothing changed" in make("develop", developed, "--native", folder)


RUNNING = """
import multiprocessing, subprocess, sys
import torch

def work(value):
    return torch.soft_clip(value).tolist()

if __name__ == "__main__":
    torch.ones(1)
    print("started", flush=True)
    sys.stdin.readline()
    print(torch.ones(1))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [torch.tensor([0.0, 50.0])]))
    program = "import torch; print(torch.soft_clip(torch.tensor([0.0, 50.0])).tolist())"
    print(subprocess.check_output([sys.executable, "-c", program], text=True), end="")
"""
KEPT = "tensor([1.])\n[[0.0, 1.0]]\n[0.0, 1.0]\n"


@contextmanager
def running(stock: Environment, folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A process that imported torch, and starts others if it is told to go on."""
    (folder / "running.py").write_text(RUNNING)
    command = [stock.python, *flags, folder / "running.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout and process.stdout.readline() == "started\n"
        yield process


def test_running_processes_and_their_children_keep_their_torch(
    stock: Environment, folder: Path, tmp_path: Path
) -> None:
    """After builds, also one without variables, and after undevelop; also the modules that they import late."""
    before = stock.content()
    make("develop", stock, "--native", folder)
    with running(stock, tmp_path) as process, running(stock, tmp_path, "-I", "-B") as isolated:
        save(folder)
        for number in range(3):
            write(folder, {"docs/soft_clip.rst": f"Version {number}.\n"})
            make("develop", stock, "--native", folder)
        assert stock.print(CLIPPED) == AS_EDITED
        assert isolated.communicate("\n")[0] == KEPT
        assert "processes still run" in make("undevelop", stock)
        assert stock.print("hasattr(torch, 'soft_clip')") == "False"
        assert process.communicate("\n")[0] == KEPT
    shutil.rmtree(folder / "docs")
    make("undevelop", stock)
    assert stock.content() == before


def test_mistakes_leave_what_was_there(developed: Environment, folder: Path) -> None:
    """In C++, and in Python: a torch that cannot be imported is not used."""
    save(folder, CLIP["SoftClip.cpp"].replace("(limit)", "(limits)"))
    said = make("develop", developed, "--native", folder, is_right=False)
    line = CLIP["SoftClip.cpp"].partition("{ return")[0].count("\n") + 1
    assert f"{folder}/SoftClip.cpp:{line}:" in said
    write_clip(folder)
    module = write(folder, {"python/_meta_registrations.py": "torch.no_such_name\n"}) / "python/_meta_registrations.py"
    said = make("develop", developed, "--native", folder, is_right=False)
    shutil.rmtree(module.parent)
    assert f"error: {module}:1: AttributeError: " in said and "no_such_name" in said
    assert developed.print(CLIPPED) == AS_WRITTEN


@pytest.mark.slow
def test_uninstalled_torch_is_noticed(stock: Environment, folder: Path, tmp_path: Path) -> None:
    other = stock.copied_to(tmp_path / "environment")
    make("develop", other, "--native", folder)
    other.pip("uninstall", "-y", "torch")
    done = other.run("import torch; print(hasattr(torch, 'soft_clip'))")
    assert done.stdout.strip() == "True"
    (line,) = done.stderr.splitlines()
    assert f"undevelop PYTHON={other.python}" in line
    make("undevelop", other)
    done = other.run("import importlib.util; print(importlib.util.find_spec('torch'))")
    assert done.stdout.strip() == "None"


@pytest.mark.slow
def test_debugger_finds_lines(stock: Environment, folder: Path) -> None:
    make("develop", stock, "--native", folder, GRAFT_DEBUG="1")
    library = stock.print("torch.__file__").replace("__init__.py", "lib/libtorch.so")
    lines = subprocess.run(["readelf", "--debug-dump=decodedline", library], capture_output=True, text=True).stdout
    assert "SoftClip.cpp" in lines
