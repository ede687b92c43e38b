"""The same input gives the same bytes: in another folder, after being killed and where files cannot grow."""

from __future__ import annotations

import hashlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.common.layout import REPOSITORY, native_folders

# How many steps a build counts.
STEPS = 7

# Bytes after which a file cannot grow: less than the laid-out libraries and the wheel have, more than any object file.
FULL = 50_000_000


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_out_of_room(command: list[str | Path], cwd: Path) -> str:
    """Run ``command`` where files cannot grow beyond ``FULL``; return what it says when it fails."""
    limit = (FULL, FULL)
    done = subprocess.run(
        command,
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode not in (0, 1), done.stderr
    return done.stderr


def kill_at(step: int, command: list[str | Path], cwd: Path) -> None:
    """Run ``command``, and kill it with its process group as soon as it shows that ``step`` begins."""
    ours, its = os.openpty()  # a log shows only the end of a step
    said = b""
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stderr=its, start_new_session=True) as process,
    ):
        os.close(its)
        try:
            while f"({step}/{STEPS}) ".encode() not in said:
                said += terminal.read(4096)
        except OSError:  # the build ended, and nobody holds the terminal's other end
            pytest.fail(f"the build ended before step {step} of {STEPS}:\n{said.decode()}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, f"the build ended before it could be killed:\n{said.decode()}"


def test_interrupted_build_in_another_folder_gives_the_same_wheel(tmp_path: Path, wheel: Path, base: Path) -> None:
    copy = tmp_path / "another/folder"
    for part in ("patches", "scripts"):
        shutil.copytree(REPOSITORY / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    folders = native_folders(os.environ["GRAFT_NATIVE"])
    copies = [str(shutil.copytree(each, tmp_path / f"operators-{number}")) for number, each in enumerate(folders)]
    (base_wheel,) = base.parent.glob("*.whl")
    out = tmp_path / "out"
    if (toolkits := REPOSITORY / "build/cuda-toolkits").is_dir():  # gigabytes, which no build changes
        (copy / "build").mkdir()
        (copy / "build/cuda-toolkits").symlink_to(toolkits)
    given = ["--pin", base.parents[2].name, "--native", shlex.join(copies), "--out", out, "--wheel", base_wheel]
    command = [sys.executable, "-m", "scripts", "build", *given]
    assert "raise the limit on the size of files" in run_out_of_room(command, copy)
    for step in range(2, STEPS + 1):
        kill_at(step, command, copy)
        assert not list(out.glob("*.whl"))
    assert "raise the limit on the size of files" in run_out_of_room(command, copy)
    assert not list(out.glob("*"))
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (built,) = out.iterdir()
    assert built.name == wheel.name
    assert sha256(built) == sha256(wheel)
