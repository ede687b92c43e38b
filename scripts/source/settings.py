"""What PyTorch's own build is run with."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ..common.console import say
from ..common.process import run
from ..inputs.pin import Pin
from ..inputs.toolchain import Toolchain
from .cache import Cache

# What a compiler takes at most, measured on PyTorch's own sources, with some room.
_BYTES_PER_JOB = 2500 * 1024**2


def variables(pin: Pin, cache: Cache, tree: Path, toolchain: Toolchain, jobs: int) -> dict[str, str]:
    """The environment variables of setup.py and of everything that it calls."""
    path = os.pathsep.join([str(cache.environment / "bin"), os.environ.get("PATH", os.defpath)])
    found = {**pin.settings.variables, "PATH": path, "CXX": toolchain.compiler, "MAX_JOBS": str(jobs)}
    if linker := quick_linker(toolchain):
        found["LDFLAGS"] = f"{os.environ.get('LDFLAGS', '')} -fuse-ld={linker}".strip()
    # PyTorch's CMake files take ccache where they find it. Paths below the tree do not count, so that another tree's
    # objects serve as well.
    objects = os.environ.get("CCACHE_DIR", str(cache.ccache))
    found |= {"CCACHE_DIR": objects, "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    return found


def quick_linker(toolchain: Toolchain) -> str | None:
    """A linker that is quicker than the compiler's own, if there is one that the compiler can call."""
    for name in ("mold", "lld"):
        command = [toolchain.compiler, f"-fuse-ld={name}", "-Wl,--version"]
        if shutil.which(f"ld.{name}") and run(command, check=False).returncode == 0:
            return name
    return None


def affordable(jobs: int) -> int:
    """How many of ``jobs`` compilers the free memory has room for."""
    room = max(1, free_memory() // _BYTES_PER_JOB)
    if room < jobs:
        say(f"      {room} of {jobs} compilers at once: there is not memory for more")
    return min(jobs, room)


def free_memory() -> int:
    """Memory that could be used now, in bytes; what a control group allows, if that is less."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (allowed := limit.read_text(encoding="utf-8").strip()).isdigit():
        free = min(free, int(allowed) - int(used.read_text(encoding="utf-8")))
    return free


def make_environment(pin: Pin, cache: Cache) -> None:
    """Make the virtual environment that holds what PyTorch's build takes from pip."""
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
