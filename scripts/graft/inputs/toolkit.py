"""The CUDA toolkit: that of ``CUDA_HOME``, or NVIDIA's packages, which the pin lists and pip installs."""

from __future__ import annotations

import hashlib
import platform
import re
from pathlib import Path

from ..core.console import StepLine, say
from ..core.errors import CommandError, UsageError
from ..core.files import Layer, held
from ..core.layout import HOME
from ..core.pip import MissingError, pip_into
from ..core.process import run
from .pin import TOOLKITS, Pin, platform_options


def find_toolkit(pin: Pin, cuda: str, home: str, line: StepLine, machine: str = platform.machine()) -> Path:
    """Return the folder of the toolkit for the version ``cuda`` on a ``machine``, and note in ``line`` which one it is.
    That is ``home``, the value of ``CUDA_HOME``, if it is of this version.

    Raises:
        MissingError: there is none, and pip cannot have one.
    """
    return _toolkit_of_user(cuda, home, line) or _toolkit_of_pin(pin, cuda, line, machine)


def _toolkit_of_user(cuda: str, home: str, line: StepLine) -> Path | None:
    if not home:
        return None
    folder = Path(home).expanduser().absolute()
    try:
        text = run([folder / "bin/nvcc", "--version"]).stdout
    except CommandError as error:
        raise UsageError(
            f"CUDA_HOME={home}: its bin/nvcc does not run",
            cause=error.cause,
            todo="set CUDA_HOME to a CUDA toolkit, or unset it",
        ) from error
    found = re.search(r"release (\d+\.\d+)", text)
    if found and found[1] == cuda:
        line.note = home
        return folder
    say(f"      CUDA_HOME={home} is CUDA {found[1] if found else '?'}, but torch was built with {cuda}: not used")
    return None


def _toolkit_of_pin(pin: Pin, cuda: str, line: StepLine, machine: str) -> Path:
    """Return the folder with the pinned packages for ``cuda``, which pip installs there once."""
    packages = pin.toolkits.get(cuda, {}).get(machine)
    if not packages:
        raise MissingError(
            f"{pin.path.parent.parent / TOOLKITS}: it has no packages for CUDA {cuda} on {machine}",
            todo=f"set CUDA_HOME to a toolkit of CUDA {cuda}, or add them with `make pin TORCH={pin.version}`",
            brief="not pinned",
        )
    line.note = "there already"

    def add(target: Path) -> None:
        try:
            pip_into(target, "install", packages, line, "--no-compile", *platform_options(machine))
        except MissingError as error:
            error.todo = f"check the network and try again, or set CUDA_HOME to a toolkit of CUDA {cuda}"
            raise
        line.note = f"{len(packages)} packages from pip"

    # Another list of packages gets another folder, so the files that compilers read now do not change.
    content = hashlib.sha256("\n".join(map(" ".join, packages.items())).encode()).hexdigest()
    folder = HOME / f"cuda-toolkits/{cuda}-{content[:8]}"
    with held(folder, [Layer(content, add)]):
        (compiler,) = folder.glob("nvidia/*/bin/nvcc")
    return compiler.parent.parent
