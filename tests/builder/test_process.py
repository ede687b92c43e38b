"""Commands: the variables that they see, how their output is followed, and when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ninja
import pytest
from graft.core.process import follow, run
from helpers import Patch

SHOW = [sys.executable, "-c", "import os; print(*sorted(os.environ), sep='\\n')"]

DROPPED = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *(
        "LD_RUN_PATH",
        "SOURCE_DATE_EPOCH",
        "NVCC_APPEND_FLAGS",
        "NVCC_PREPEND_FLAGS",
        "PYTHONOPTIMIZE",
        "PYTHONWARNINGS",
    ),
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
    command = ["sh", "-c", "sleep 0.7; echo done"]
    lines: list[str] = []
    assert follow(command, lines.append, env={}, watch=lambda: asked.append(True)) == 0
    assert lines == ["done\n"]
    assert len(asked) >= 2


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
