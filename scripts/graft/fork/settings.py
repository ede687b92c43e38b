"""The settings of PyTorch's own build."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ..core.console import say
from ..core.process import run
from ..inputs.pin import Pin
from ..inputs.toolchain import Toolchain
from .cache import Cache

# The peak memory of a compiler, measured on PyTorch's own sources, with a margin.
_BYTES_PER_JOB = 2500 * 1024**2


def variables(pin: Pin, cache: Cache, tree: Path, toolchain: Toolchain, jobs: int) -> dict[str, str]:
    """Return the environment variables for setup.py and the commands that it runs."""
    path = os.pathsep.join([str(cache.environment / "bin"), os.environ.get("PATH", os.defpath)])
    found = {**pin.settings.variables, "PATH": path, "CXX": toolchain.compiler, "MAX_JOBS": str(jobs)}
    if linker := quick_linker(toolchain):
        found["LDFLAGS"] = f"{os.environ.get('LDFLAGS', '')} -fuse-ld={linker}".strip()
    # PyTorch's CMake files use ccache if it is installed. Paths below the tree are ignored, so that objects of other
    # trees are reused.
    objects = os.environ.get("CCACHE_DIR", str(cache.ccache))
    found |= {"CCACHE_DIR": objects, "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    return found


def quick_linker(toolchain: Toolchain) -> str | None:
    """Return the option for a faster linker than the default, if the compiler can run one."""
    for name in ("mold", "lld"):
        command = [toolchain.compiler, f"-fuse-ld={name}", "-Wl,--version"]
        if shutil.which(f"ld.{name}") and run(command, check=False).returncode == 0:
            return name
    return None


def affordable(jobs: int) -> int:
    """Return how many of ``jobs`` compilers fit into the free memory."""
    room = max(1, free_memory() // _BYTES_PER_JOB)
    if room < jobs:
        say(f"      {room} of {jobs} compilers at once: not enough memory for more")
    return min(jobs, room)


def free_memory() -> int:
    """Return the available memory in bytes, or the limit of the control group if that is lower."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (allowed := limit.read_text(encoding="utf-8").strip()).isdigit():
        free = min(free, int(allowed) - int(used.read_text(encoding="utf-8")))
    return free


def make_environment(pin: Pin, cache: Cache) -> None:
    """Create the virtual environment with the Python packages that PyTorch's build needs."""
    mark = cache.environment / "ready"
    wanted = f"{sys.version}\n{pin.settings.python}\n"
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(cache.environment, ignore_errors=True)
    run([sys.executable, "-m", "venv", cache.environment])
    pip: list[str | Path] = [
        cache.environment / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    run([*pip, *pin.settings.python])
    mark.write_text(wanted, encoding="utf-8")
