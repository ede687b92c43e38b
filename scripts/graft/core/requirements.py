"""What a machine must have before anything is downloaded. Uses only the standard library."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .errors import ToolchainError


@dataclass(frozen=True)
class Requirement:
    """A program, file or module.

    Args:
        name: what messages call it.
        is_there: whether this machine has it.
        packages: the packages of Debian and of Fedora that have it; empty if no package can help.
        instead: what to do if no package can help.
    """

    name: str
    is_there: bool
    packages: tuple[str, ...]
    instead: str = ""


def requirements() -> list[Requirement]:
    """Return everything that a build needs from the machine."""
    compiler = os.environ.get("CXX") or "g++"
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    is_package = sys.base_prefix == "/usr"
    include = Path(sysconfig.get_path("include"))
    modules = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
    another = f"set PYTHON to another Python: {sys.executable} was installed without it"
    return [
        Requirement(compiler, _runs(compiler), ("g++", "gcc-c++") if compiler == "g++" else (), "set CXX to a g++"),
        Requirement("git", _runs("git"), ("git", "git")),
        Requirement("make", _runs("make"), ("make", "make")),
        Requirement(
            f"{include}/Python.h",
            (include / "Python.h").is_file(),
            (f"{python}-dev", "python3-devel") if is_package else (),
            another,
        ),
        Requirement("Python's module ensurepip", modules, (f"{python}-venv", "python3") if is_package else (), another),
    ]


def require_all() -> None:
    """Check that everything is there.

    Raises:
        ToolchainError: names all that is missing, and the packages to install.
    """
    missing = [each for each in requirements() if not each.is_there]
    if not missing:
        return
    packaged = [each.packages for each in missing if each.packages]
    debian, fedora = (" ".join(dict.fromkeys(names)) for names in zip(*packaged, strict=True)) if packaged else ("", "")
    todo = [f"`apt-get install {debian}` (Debian, Ubuntu) or `dnf install {fedora}` (Fedora)"] if packaged else []
    todo += [each.instead for each in missing if not each.packages]
    raise ToolchainError(f"not found: {', '.join(each.name for each in missing)}", todo="; ".join(dict.fromkeys(todo)))


def _runs(program: str) -> bool:
    return shutil.which(program) is not None
