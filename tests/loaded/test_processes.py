"""Operators that a process has loaded, in the processes that it starts, and in a package that is imported again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clipped import INLINE, variant
from graft.core.layout import PACKAGES
from helpers import write
from sessions import Session, stock_variables, without_progress

SCRIPT = """
import multiprocessing, sys
import torch

def child(queue):
    try:
        leaf = torch.ones(2, requires_grad=True)
        torch.twice(leaf).sum().backward()
        queue.put([leaf.twice().tolist(), leaf.grad.tolist()])
    except BaseException as error:
        queue.put(f"{type(error).__name__}: {error}")

def result(context):
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    found = queue.get(timeout=120)
    process.join()
    return found, process.exitcode

if __name__ == "__main__":
    method, when, *folders = sys.argv[1:]
    context = multiprocessing.get_context(method)
    if when == "early":
        early = context.Process(target=print)
        early.start(); early.join()
    import graft
    for folder in folders:
        graft.load(folder)
    print(result(context))
"""

AT_THE_END = """
import sys, threading
import torch, graft
graft.load(sys.argv[1])
leaf = torch.ones(2, requires_grad=True)
kept = torch.twice(leaf)
compiled = torch.compile(torch.twice, backend="eager")(leaf)
def call():
    for _ in range(1000): torch.twice(leaf).sum().backward()
thread = threading.Thread(target=call)  # one that goes on to the end ends Python with PyTorch's own operators, too
thread.start()
if sys.argv[2]: thread.join()
torch.kept_to_the_end = kept, compiled, torch.ops.aten.twice.default
if sys.argv[2] == "1": graft.unload("clipped")
if sys.argv[2] == "2": del sys.modules["graft"], graft
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    return write(folder, {"script.py": SCRIPT, "at_the_end.py": AT_THE_END})


def run(where: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = stock_variables(where, **variables)
    return subprocess.run([sys.executable, *command], cwd=where, env=env, capture_output=True, text=True, check=False)


def output(where: Path, *command: str | Path, **variables: str) -> str:
    """Return the output of a process, which must succeed and write no error."""
    done = run(where, *command, **variables)
    assert (done.returncode, without_progress(done.stderr)) == (0, ""), done.stderr
    return done.stdout.strip()


def from_child(where: Path, code: str, *options: str, before: str = "pass") -> str:
    """Return the output of a process that one starts which has loaded the folder."""
    parent = (
        f"import subprocess, sys, graft; graft.load({str(variant('first'))!r}); {before}\n"
        f"print(subprocess.check_output([sys.executable, *{list(options)}, '-c', {code!r}], text=True))"
    )
    return output(where, "-c", parent)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_that_is_started_has_them(where: Path, method: str) -> None:
    assert output(where, "script.py", method, "late", variant("first")) == "([[2.0, 2.0], [2.0, 2.0]], 0)"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_has_the_last_version(where: Path, method: str) -> None:
    assert (
        output(where, "script.py", method, "early", variant("first"), variant("header"))
        == "([[70.0, 70.0], [2.0, 2.0]], 0)"
    )


def test_forkserver_that_is_older_says_so(where: Path) -> None:
    said = output(where, "script.py", "forkserver", "early", variant("first"))
    assert "AttributeError" in said and "graft.load" in said


def test_child_of_a_child_has_them(where: Path) -> None:
    inner = "import torch; print(torch.twice(torch.ones(1)).item())"
    outer = (
        f"import subprocess, sys, torch; print(subprocess.check_output([sys.executable, '-c', {inner!r}], text=True))"
    )
    assert from_child(where, outer) == "2.0"


def test_child_after_unload_has_none_and_says_why(where: Path) -> None:
    inner = "import torch\ntry: torch.twice\nexcept AttributeError as error: print(error)"
    said = from_child(where, inner, before="graft.unload('clipped')")
    assert "the load clipped of graft.load had it, and was unloaded since" in said


def test_isolated_child_has_none(where: Path) -> None:
    paths = [os.environ["GRAFT_STOCK"], str(PACKAGES), str(where / "installed")]
    inner = f"import sys; sys.path[:0] = {paths}; import torch; print(hasattr(torch, 'twice'), torch.__file__)"
    assert from_child(where, inner, "-I").startswith(f"False {paths[0]}")


def test_child_with_another_torch_has_none(where: Path, tmp_path: Path) -> None:
    """The file names the torch that it is for."""
    code = (
        f"import os, graft, torch; graft.load({str(variant('first'))!r}); from graft.session import inherited\n"
        "print(inherited._FOLDER / os.environ['TORCH_GRAFT_LOADS'])"
    )
    file = Path(output(where, "-c", code))
    given = json.loads(file.read_text())
    other = file.with_name("0123456789abcdef")
    child = "import torch; print(hasattr(torch, 'twice'))"
    assert output(where, "-c", child, TORCH_GRAFT_LOADS=file.name) == "True"
    try:
        other.write_text(json.dumps({**given, "torch": "0" * 40}))
        assert output(where, "-c", child, TORCH_GRAFT_LOADS=other.name) == "False"
    finally:
        other.unlink()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "nothing"])
def test_wrong_name_is_one_line(where: Path, name: str) -> None:
    done = run(where, "-c", "import torch; print(torch.ones(1).item())", TORCH_GRAFT_LOADS=name)
    assert (done.returncode, done.stdout.strip(), len(done.stderr.splitlines())) == (0, "1.0", 1)


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_end_well(where: Path, times: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        ways = ["0", "1", "2"] * times
        done = list(pool.map(lambda way: run(where, "at_the_end.py", variant("first"), way), ways))
    assert [(each.returncode, without_progress(each.stderr)) for each in done] == [(0, "")] * len(ways)


AGAIN = {
    "reloaded": "import importlib; importlib.reload(graft)",
    "imported again": "import sys\nfor name in [each for each in sys.modules if each.partition('.')[0] == 'graft']:\n"
    "    del sys.modules[name]\nimport graft",
    "all modules reloaded": "import importlib, sys\n"
    "for name in sorted(each for each in sys.modules if each.startswith('graft.session') or each == 'graft'):\n"
    "    importlib.reload(sys.modules[name])\nimport graft",
}


@pytest.mark.parametrize("how", AGAIN)
def test_package_that_is_imported_again_keeps_one_state(where: Path, how: str) -> None:
    with Session(where) as session:
        session.load(variant("first"))
        session.run("function = torch.twice; compiled = torch.compile(lambda x: torch.twice(x), backend='aot_eager')")
        session.run("leaf = torch.ones(2, requires_grad=True); compiled(leaf).sum().backward()")
        session.run(AGAIN[how])
        assert session.value("list(graft.loaded())") == ["clipped"]
        session.load(variant("header"))
        assert session.value("[torch.twice(leaf).tolist(), torch.twice is function]") == [[70.0, 70.0], True]
        session.load(variant("formula"))
        assert session.value("torch.autograd.grad(compiled(leaf).sum(), leaf)[0].tolist()") == [200.0, 200.0]
        session.run("graft.unload('clipped')")
        assert session.value("hasattr(torch, 'twice')") is False
        assert session.ended() == 0


def test_public_functions_are_callable_when_all_modules_are_imported(where: Path) -> None:
    code = (
        "import graft, importlib, pkgutil, types, torch\n"
        "for each in pkgutil.walk_packages(graft.__path__, 'graft.'):\n"
        "    if 'repository' not in each.name and 'appended' not in each.name and not each.name.endswith('__main__'):\n"
        "        try: importlib.import_module(each.name)\n"
        "        except ModuleNotFoundError as error: print(error.name)\n"
        "assert {'build', 'load', 'load_cell', 'load_inline', 'loaded', 'swap', 'unload'} < set(graft.__all__)\n"
        "assert all(callable(getattr(graft, name)) for name in graft.__all__)\n"
        f"ops = graft.load({str(variant('first'))!r})\n"
        "assert list(graft.loaded()) == ['clipped'] and ops.twice(torch.ones(1)).item() == 2\n"
        "graft.unload('clipped')\n"
        f"{INLINE}\n"
        "with times(3) as ops:\n    assert ops.times(torch.ones(1)).item() == 3\n"
        "assert issubclass(graft.BuildError, graft.GraftError)\n"
    )
    done = run(where, "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", ["graft.load('/nowhere')", "graft.load_inline('f() ->', cpp='')", "graft.unload('f')"])
def test_error_of_a_script_is_a_few_lines(where: Path, call: str) -> None:
    """The traceback ends at the script's line, and nothing speaks of make."""
    done = run(where, "-c", f"import graft\n{call}")
    assert done.returncode == 1 and "graft.core.errors.UsageError: " in done.stderr
    assert len(done.stderr.splitlines()) <= 9 and "NATIVE" not in done.stderr, done.stderr
