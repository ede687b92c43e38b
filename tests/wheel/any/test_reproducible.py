"""The same input gives the same bytes: in another folder, and after being killed at several moments."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]

# Seconds after which builds are killed: while the base is laid out, while code is generated, while it is compiled.
MOMENTS = (2, 8, 20)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_interrupted_build_in_another_folder_gives_the_same_wheel(tmp_path: Path, wheel: Path, base: Path) -> None:
    copy = tmp_path / "another/folder"
    for part in ("patches", "scripts"):
        shutil.copytree(REPOSITORY / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    native = Path(shutil.copytree(os.environ["GRAFT_NATIVE"], tmp_path / "operators"))
    (base_wheel,) = base.parent.glob("*.whl")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "scripts", "build", "--native", native, "--out", out, "--wheel", base_wheel]
    for seconds in MOMENTS:
        with subprocess.Popen(command, cwd=copy, stderr=subprocess.PIPE, start_new_session=True) as process:
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, "the build ended before it could be killed"
        assert not list(out.glob("*.whl"))
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (built,) = out.iterdir()
    assert built.name == wheel.name
    assert sha256(built) == sha256(wheel)
