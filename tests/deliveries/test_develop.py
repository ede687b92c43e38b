"""``make develop``: add operators to the installed torch, and remove them again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY
from users import KERNEL, Environment, make, write_operator

CUT = "torch.cut(torch.tensor([0., 5.])).tolist()"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("develop") / "ops"


@pytest.fixture
def folder(place: Path) -> Path:
    """The same folder for each test, so that nothing is compiled twice."""
    return write_operator(place, "cut")


@pytest.fixture
def developed(stock: Environment, folder: Path) -> Environment:
    """The environment with the operator."""
    make("develop", stock, "--native", folder)
    return stock


def save(folder: Path, old: str = "", new: str = "", more: str = "") -> None:
    """Save the kernel with a text replaced, and more behind it."""
    (folder / "cut.cpp").write_text(KERNEL.replace("NAME", "cut").replace(old, new) + more)


def test_from_an_empty_folder_to_the_operator_and_back(stock: Environment, folder: Path) -> None:
    before = stock.content()
    make("develop", stock, "--native", folder)
    assert stock.print(CUT) == "[0.0, 1.0]"
    assert stock.print("torch.ones(2, requires_grad=True).cut(2).sum().grad_fn is not None") == "True"
    save(folder, "clamp_max", "clamp_min")
    make("develop", stock, "--native", folder)
    assert stock.print(CUT) == "[1.0, 5.0]"
    make("undevelop", stock)
    assert stock.print("hasattr(torch, 'cut')") == "False"
    assert stock.content() == before


def test_installed_files_are_never_written_to(stock: Environment, folder: Path) -> None:
    before = stock.content()
    make("develop", stock, "--native", folder)
    stock.print("torch.compile(torch.cut)(torch.ones(2)).tolist()")
    after = stock.content()
    assert {name: after[name] for name in before} == before
    added = {name.split("/site-packages/")[1].split("/")[0] for name in after.keys() - before.keys()}
    assert added == {"torch.graft", "torch_graft.pth"}


def test_what_is_there_is_listed(developed: Environment, folder: Path) -> None:
    about = developed.about()
    assert "make develop" in about
    assert f"{folder}: unchanged since" in about
    (folder / "build").mkdir(exist_ok=True)
    (folder / "build/object.cpp").write_text("not read")
    assert f"{folder}: unchanged since" in developed.run("from torch import _graft; _graft.main()").stdout
    save(folder, more="// more\n")
    about = developed.about()
    assert f"{folder}: changed since: cut.cpp" in about
    assert "nothing changed" not in make("develop", developed, "--native", folder)
    assert "nothing changed" in make("develop", developed, "--native", folder)


RUNNING = """
import multiprocessing, subprocess, sys
import torch

def work(value):
    return torch.cut(value).tolist()

if __name__ == "__main__":
    torch.ones(1)
    print("started", flush=True)
    sys.stdin.readline()
    print(torch.ones(1))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [torch.tensor([0.0, 5.0])]))
    program = "import torch; print(torch.cut(torch.tensor([0.0, 5.0])).tolist())"
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


@pytest.mark.parametrize("flags", [(), ("-I",)])
def test_running_process_keeps_its_torch(
    developed: Environment, folder: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Also the modules that it imports late, and the processes that it starts."""
    with running(developed, tmp_path, *flags) as process:
        for number in range(3):
            save(folder, "clamp_max", "clamp_min", more="\n" * number)
            make("develop", developed, "--native", folder)
        said, _ = process.communicate("\n")
    assert said == KEPT
    assert developed.print(CUT) == "[1.0, 5.0]"


def test_running_process_and_its_children_keep_their_torch_after_undevelop(
    stock: Environment, folder: Path, tmp_path: Path
) -> None:
    before = stock.content()
    make("develop", stock, "--native", folder)
    with running(stock, tmp_path) as process:
        assert "processes still run" in make("undevelop", stock)
        assert stock.print("hasattr(torch, 'cut')") == "False"
        said, _ = process.communicate("\n")
    assert said == KEPT
    make("undevelop", stock)
    assert stock.content() == before


@pytest.mark.parametrize("flags", [(), ("-I",), ("-E",)])
def test_start_runs_nothing_outside_the_environment(
    developed: Environment, folder: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "_torch_graft_start.py").write_text("print('outside')\n")
    program = "import torch; print(torch.cut(torch.ones(1)))"
    env = {**os.environ, "TORCH_GRAFT_TREE": str(tmp_path), "PYTHONPATH": ""}
    done = subprocess.run([developed.python, *flags, "-B", "-c", program], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("tensor([1.])\n", "")


def test_torch_that_cannot_be_imported_is_not_used(developed: Environment, folder: Path) -> None:
    module = folder / "python/_meta_registrations.py"
    module.parent.mkdir()
    module.write_text("torch.no_such_name\n")
    try:
        said = make("develop", developed, "--native", folder, is_right=False)
        assert f"error: {module}:1: AttributeError: " in said and "no_such_name" in said
        assert developed.print(CUT) == "[0.0, 1.0]"
    finally:
        module.unlink()
        module.parent.rmdir()


def test_mistake_leaves_what_was_there(developed: Environment, folder: Path) -> None:
    save(folder, "clamp_max(limit)", "clamp_max(limits)")
    said = make("develop", developed, "--native", folder, is_right=False)
    assert f"{folder}/cut.cpp:6:" in said
    assert developed.print(CUT) == "[0.0, 1.0]"


def test_killed_build_leaves_a_torch_that_imports(developed: Environment, folder: Path) -> None:
    """At the last step, which writes into the environment; tests/promises kills builds at others."""
    save(folder, "clamp_max", "clamp_min")
    command = [sys.executable, "-m", "graft", "develop", "--python", developed.python, "--native", folder]
    reader, terminal = os.openpty()  # on a terminal each step is shown when it begins
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=terminal, start_new_session=True) as process:
        os.close(terminal)
        said = ""
        while "add to" not in said:
            said += os.read(reader, 4096).decode()
        os.killpg(process.pid, signal.SIGKILL)
    os.close(reader)
    assert developed.print(CUT) == "[0.0, 1.0]"
    make("develop", developed, "--native", folder)
    assert developed.print(CUT) == "[1.0, 5.0]"


def test_another_torch_is_noticed(developed: Environment, folder: Path) -> None:
    (record,) = developed.packages.glob("torch-*.dist-info/RECORD")
    version, record = developed.own("torch/version.py"), developed.own(f"{record.parent.name}/RECORD")
    status, before = version.stat(), record.read_text()
    os.utime(version, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert developed.print(CUT) == "[0.0, 1.0]"  # a copy of the same torch
    record.write_text(before.replace("torch/version.py,sha256=", "torch/version.py,sha256=another"))  # an update
    try:
        done = developed.run("import torch; print(hasattr(torch, 'cut'))")
        assert done.stdout.strip() == "False"
        (line,) = done.stderr.splitlines()
        assert "make" in line
        assert f"develop NATIVE={folder} PYTHON={developed.python}" in line
        assert not developed.run("import sys").stderr
    finally:
        os.utime(version, ns=(status.st_atime_ns, status.st_mtime_ns))
        record.write_text(before)
    assert developed.print(CUT) == "[0.0, 1.0]"


def test_uninstalled_torch_is_noticed(environment: Environment, folder: Path, base_wheel: Path) -> None:
    make("develop", environment, "--native", folder)
    environment.pip("uninstall", "-y", "torch")
    try:
        done = environment.run("import torch; print(hasattr(torch, 'cut'))")
        assert done.stdout.strip() == "True"
        (line,) = done.stderr.splitlines()
        assert f"undevelop PYTHON={environment.python}" in line
        make("undevelop", environment)
        done = environment.run("import importlib.util; print(importlib.util.find_spec('torch'))")
        assert done.stdout.strip() == "None"
    finally:
        environment.pip("install", "--no-deps", base_wheel)


def test_tree_that_was_deleted_leaves_the_installed_torch(developed: Environment, folder: Path) -> None:
    trees = developed.packages / "torch.graft"
    trees.rename(developed.packages / "moved")
    try:
        assert developed.print("hasattr(torch, 'cut')") == "False"
    finally:
        (developed.packages / "moved").rename(trees)


def test_environment_without_torch_is_refused(tmp_path: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "graft", "develop", "--python", "/usr/bin/env", "--native", folder]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "PYTHON=/usr/bin/env" in done.stderr


def test_every_save_builds(stock: Environment, folder: Path) -> None:
    command = [sys.executable, "-m", "graft", "develop", "--watch", "--python", stock.python, "--native", folder]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr

        def wait_for(text: str) -> None:
            assert process.stderr
            assert any(text in line for line in process.stderr), "it ended"

        wait_for("ready")
        save(folder, "clamp_max(limit)", "clamp_max(limits)")
        wait_for("waiting for the next save")
        time.sleep(0.01)
        save(folder, "clamp_max", "clamp_min")
        wait_for("ready")
        process.terminate()
    assert stock.print(CUT) == "[1.0, 5.0]"


@pytest.mark.slow
def test_debugger_finds_lines(stock: Environment, folder: Path) -> None:
    make("develop", stock, "--native", folder, GRAFT_DEBUG="1")
    library = stock.print("torch.__file__").replace("__init__.py", "lib/libtorch.so")
    lines = subprocess.run(["readelf", "--debug-dump=decodedline", library], capture_output=True, text=True).stdout
    assert "cut.cpp" in lines
