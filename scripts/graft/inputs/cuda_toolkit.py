"""The CUDA toolkit: ``CUDA_HOME``, or NVIDIA's packages, which the pin lists and pip installs; and ``CUDA_ARCHS``."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ..core.console import StepLine, say
from ..core.errors import CommandError, UsageError
from ..core.files import Layer, held
from ..core.layout import REPOSITORY
from ..core.pip import MissingError, pip_into
from ..core.process import run
from .pin import TOOLKITS, Pin

# The value of CUDA_ARCHS that compiles no CUDA source.
NONE = "none"


def wanted_architectures(text: str) -> tuple[str, ...]:
    """Parse ``CUDA_ARCHS``, for example ``80 90a``. Empty means the architectures of the base.

    Raises:
        UsageError: it contains something else.
    """
    words = text.replace(",", " ").split()
    names = tuple(word.removeprefix("sm_").replace(".", "") for word in words)
    wrong = [word for word, name in zip(words, names, strict=True) if not re.fullmatch(r"\d{2,3}[af]?", name)]
    if words != [NONE] and wrong:
        raise UsageError(
            f"CUDA_ARCHS={' '.join(words)}: {', '.join(wrong)} is not a GPU architecture",
            todo=f'write them as in CUDA_ARCHS="80 90a", or {NONE} to build no CUDA kernels',
        )
    return names


def request(wanted: str, home: str) -> str:
    """Return what decides about the CUDA kernels, in addition to the files of a build: ``CUDA_ARCHS`` and
    ``CUDA_HOME``.
    """
    return f"{' '.join(wanted_architectures(wanted))} {home}"


def architectures_in(requested: str) -> str:
    """Return the value of ``CUDA_ARCHS`` in what ``request`` returned."""
    return " ".join(word for word in requested.split() if re.fullmatch(rf"{NONE}|\d{{2,3}}[af]?", word))


def find_toolkit(pin: Pin, cuda: str, home: str, line: StepLine) -> Path:
    """Return the folder of the toolkit for the version ``cuda``, and note in ``line`` which one it is. That is
    ``home``, the value of ``CUDA_HOME``, if it is of this version.

    Raises:
        MissingError: there is none, and pip cannot have one.
        FetchError: a package is not the pinned one, or pip failed.
        UsageError: ``CUDA_HOME`` is no toolkit.
    """
    return _toolkit_of_user(cuda, home, line) or _toolkit_of_pin(pin, cuda, line)


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


def _toolkit_of_pin(pin: Pin, cuda: str, line: StepLine) -> Path:
    """Return the folder with the pinned packages for ``cuda``, which pip installs there once."""
    packages = pin.toolkits.get(cuda)
    if not packages:
        raise MissingError(
            f"{pin.path.parent.parent / TOOLKITS}: it has no packages for CUDA {cuda}",
            todo=f"set CUDA_HOME to a toolkit of CUDA {cuda}, or add them with `make pin TORCH={pin.version}`",
            brief="not pinned",
        )
    line.note = "there already"

    def add(target: Path) -> None:
        try:
            pip_into(target, "install", packages, line, "--no-compile")
        except MissingError as error:
            error.todo = f"check the network and try again, or set CUDA_HOME to a toolkit of CUDA {cuda}"
            raise
        line.note = f"{len(packages)} packages from pip"

    # Another list of packages gets another folder, so the files that compilers read now do not change.
    content = hashlib.sha256("\n".join(map(" ".join, packages.items())).encode()).hexdigest()
    folder = REPOSITORY / f"build/cuda-toolkits/{cuda}-{content[:8]}"
    with held(folder, [Layer(content, add)]):
        (compiler,) = folder.glob("nvidia/*/bin/nvcc")
    return compiler.parent.parent
