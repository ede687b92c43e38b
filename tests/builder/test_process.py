"""Commands: their variables, their output, their end, and torchgen's; and how the steps of a build are shown."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ninja
import pytest
from graft.base.base import run_with_torchgen
from graft.core import console
from graft.core.console import StepLine, Steps
from graft.core.layout import REPOSITORY
from graft.core.process import follow, run
from helpers import Capture, Patch, write

SHOW = [sys.executable, "-c", "import os; print(*sorted(os.environ), sep='\\n')"]

DROPPED = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("LD_RUN_PATH", "SOURCE_DATE_EPOCH", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"),
    *("PYTHONOPTIMIZE", "PYTHONWARNINGS"),
)
KEPT = ("PATH", "HOME", "CUDA_HOME", "CCACHE_DIR", "PYTHONPATH", "PYTHONUTF8")


def test_commands_do_not_see_what_changes_compilers_unseen(monkeypatch: Patch) -> None:
    for name in (*DROPPED, *KEPT):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    seen = set(run(SHOW, env={"GIVEN": "1"}).stdout.split())
    assert seen.isdisjoint(DROPPED) and seen >= {*KEPT, "GIVEN"}


def test_each_line_is_handed_on_at_once() -> None:
    lines: list[tuple[str, float]] = []
    start = time.monotonic()
    command = ["sh", "-c", 'echo "$WORD"; sleep 0.5; echo two >&2; exit 3']
    code = follow(command, lambda line: lines.append((line, time.monotonic() - start)), env={"WORD": "one"})
    assert code == 3
    assert [line for line, _ in lines] == ["one\n", "two\n"]
    assert lines[0][1] < lines[1][1] - 0.4


def test_command_is_watched_to_its_end() -> None:
    asked: list[bool] = []
    lines: list[str] = []
    command = ["sh", "-c", "sleep 0.7; echo done"]
    assert follow(command, lines.append, env={}, watch=lambda: asked.append(True)) == 0
    assert lines == ["done\n"] and len(asked) >= 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_compilers_end_with_the_builder(tmp_path: Path, number: signal.Signals) -> None:
    """Otherwise they would write their objects into the next build."""
    rule = "rule slow\n  command = touch began; sleep 1; touch $out\nbuild object: slow\n"
    (tmp_path / "build.ninja").write_text(rule)
    command = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(tmp_path)]
    body = f"from graft.core.process import follow; follow({command!r}, print, env={{}})"
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.DEVNULL) as process:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        process.send_signal(number)
    time.sleep(1.5)
    assert not (tmp_path / "object").exists()


SHOW_MODULES = """
import os, sys
import graft, torchgen
print(graft.__file__, torchgen.__file__, os.getcwd(), sys.flags.utf8_mode, "\u00e9", *sys.argv[1:], sep="\\n")
sys.exit(3)
"""


def test_module_imports_the_tree_s_torchgen(tmp_path: Path, monkeypatch: Patch) -> None:
    tree = write(tmp_path / "tree", {"torchgen/__init__.py": "", "torchgen/show.py": SHOW_MODULES})
    elsewhere = write(tmp_path / "elsewhere", {"torchgen/__init__.py": ""})
    # The user's environment variables must not matter.
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    monkeypatch.setenv("PYTHONUTF8", "0")
    # Nor where the command is typed, such as a checkout of PyTorch.
    monkeypatch.chdir(elsewhere)
    done = run_with_torchgen(tree, "torchgen.show", "--base", tree)
    assert done.returncode == 3
    modules = [f"{folder}/__init__.py" for folder in (REPOSITORY / "scripts/graft", tree / "torchgen")]
    assert done.stdout.splitlines() == [*modules, str(tree), "1", "\u00e9", "--base", str(tree)]


def test_what_is_only_counted_is_no_step(capsys: Capture) -> None:
    steps = Steps()
    with steps.step("first"):
        pass
    with steps.counted("between"):
        time.sleep(0.02)
    with steps.step("second"):
        pass
    said = re.sub(r"\d+\.\d s", "T", capsys.readouterr().err)
    assert said == "first: T\nsecond: T\n"
    assert list(steps.seconds) == ["first", "between", "second"]
    assert steps.seconds["between"] >= 0.02


def test_log_gets_a_line_every_20_seconds(capsys: Capture, monkeypatch: Patch) -> None:
    """Also while a command says nothing, such as a compiler on a busy machine."""
    times = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: times[-1], perf_counter=lambda: times[-1])
    monkeypatch.setattr(console, "time", clock)
    line = StepLine("compile:")
    line.update("[1/9] a.cpp")
    said = []
    for seconds in (19, 20, 39, 41, 60):
        times.append(1000.0 + seconds)
        line.repeat()
        said.append(capsys.readouterr().err)
    assert said == ["", "compile: [1/9] a.cpp, 20 s\n", "", "compile: [1/9] a.cpp, 41 s\n", ""]


def test_step_whose_body_says_nothing_is_repeated(capfd: Capture, monkeypatch: Patch) -> None:
    """With the real clock, and lines more often."""
    monkeypatch.setattr(console, "_LOGGED_EVERY", 0.1)
    steps, said, deadline = Steps(), "", time.monotonic() + 20
    with steps.step("generate"):
        while said.count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            said += capfd.readouterr().err
    said += capfd.readouterr().err
    assert re.fullmatch(r"(generate: \.\.\., \d+ s\n){2,}generate: \d+\.\d s\n", said)


def test_step_that_fails_says_so_and_has_no_time(capsys: Capture) -> None:
    steps = Steps()
    with pytest.raises(KeyError), steps.step("first"):
        raise KeyError
    assert capsys.readouterr().err == "first: failed\n"
    assert not steps.seconds
