"""Folders that are created once and shared: two processes at once, a killed process, changed content."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from graft.core import files
from graft.core.files import Layer, held
from graft.core.layout import REPOSITORY
from helpers import Patch

# Add two layers to a folder, each a line in its log; then report, wait for a line of input and end.
HOLD = """
import os, sys, time
from pathlib import Path
from graft.core.files import Layer, held
folder = Path(sys.argv[1])
def add(word):
    def fill(folder):
        folder.mkdir(exist_ok=True, parents=True)
        with (folder / "log").open("a") as log:
            log.write(f"{word}\\n")
        if word == "killed":
            os.kill(os.getpid(), 9)
        time.sleep(0.2)
    return fill
with held(folder, [Layer(word, add(word)) for word in sys.argv[2:]]):
    print("held", flush=True)
    input()
    print((folder / "log").read_text().split(), flush=True)
"""


def holding(folder: Path, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(folder), *words]
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def log_of(process: subprocess.Popen[str]) -> list[str]:
    """Let the process end. Return the log of its folder as it saw it."""
    out, errors = process.communicate("\n")
    assert process.returncode == 0, errors
    return list(ast.literal_eval(out.splitlines()[-1]))


def test_two_at_once_make_it_once_and_hold_it_together(tmp_path: Path) -> None:
    processes = [holding(tmp_path / "it", "a", "b") for _ in range(2)]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "held\n"
    assert [log_of(process) for process in processes] == [["a", "b"]] * 2


def test_other_content_waits_for_those_who_use_it(tmp_path: Path) -> None:
    user = holding(tmp_path / "it", "a", "b")
    assert user.stdout and user.stdout.readline() == "held\n"
    other = holding(tmp_path / "it", "other", "b")
    assert other.stderr and f"another process uses {tmp_path / 'it'}" in other.stderr.readline()
    assert log_of(user) == ["a", "b"]
    assert log_of(other) == ["other", "b"]


@pytest.mark.parametrize(
    ("held_before", "log"),
    [
        # Only the layer that differs is added again.
        ([["a", "b"]], ["a", "b"]),
        ([["a", "c"]], ["a", "c", "b"]),
        ([["d", "b"]], ["a", "b"]),
        # A process that is killed leaves nothing half made.
        ([["killed", "b"]], ["a", "b"]),
        ([["a", "killed"]], ["a", "b"]),
        ([["a", "b"], ["a", "killed"]], ["a", "b"]),
    ],
)
def test_what_was_left_is_used_or_made_anew(tmp_path: Path, held_before: list[list[str]], log: list[str]) -> None:
    for words in held_before:
        process = holding(tmp_path / "it", *words)
        process.communicate("\n")
        assert process.returncode == (-signal.SIGKILL if "killed" in words else 0)
    assert log_of(holding(tmp_path / "it", "a", "b")) == log


def test_one_whose_creation_or_deletion_failed_is_made_anew(tmp_path: Path, monkeypatch: Patch) -> None:
    def fail(folder: Path) -> None:
        (folder / "log").write_text("half\n")
        raise ValueError(folder)

    assert log_of(holding(tmp_path / "it", "a")) == ["a"]
    with pytest.raises(ValueError), held(tmp_path / "it", [Layer("other", fail)]):
        pass
    for word in ("other", "a"):
        assert log_of(holding(tmp_path / "it", word)) == [word]
    monkeypatch.setattr(files.shutil, "rmtree", lambda _: (tmp_path / "it/log").write_text("half\n"))
    files.delete(tmp_path / "it")
    assert log_of(holding(tmp_path / "it", "a")) == ["a"]
