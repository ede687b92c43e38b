"""The CUDA toolkit that a wheel was built with: nvcc and headers, from the packages of pip that the wheel asks for."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

from ..base.tree import Base, extract
from ..common.console import StepLine
from ..common.errors import FetchError, GraftError, UsageError
from ..common.files import free_bytes, write_atomically
from ..common.process import run
from .toolchain import Toolchain

# Beyond what the wheel runs with: the compiler, and the C++ libraries that PyTorch's headers include.
_TO_COMPILE = ("nvcc", "cccl")

# The packages hold libraries, too, which are not laid out.
_NEEDED_BYTES = 4 * 1024**3
_FOLDERS = ("bin", "include", "nvvm")

# PyTorch's own flags for CUDA sources (cmake/Dependencies.cmake, torch/utils/cpp_extension.py).
_FLAGS = (
    "-O3",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    # A call of a host function from a kernel would only fail when it runs.
    "-Werror=cross-execution-space-call",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wno-psabi,-Werror=return-type",
)
_DEFINITIONS = (
    "AT_PER_OPERATOR_HEADERS",
    "CUDA_HAS_FP16=1",
    "NDEBUG",
    "TORCH_CUDA_BUILD_MAIN_LIB",
    "USE_CUDA",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF_OPERATORS__",
)


@dataclass(frozen=True)
class Nvcc:
    """nvcc with what it compiles for.

    Args:
        folder: the toolkit.
        host: the C++ compiler that it hands the host's part to.
        architectures: of GPUs, such as ``90a``.
    """

    folder: Path
    host: Toolchain
    architectures: tuple[str, ...]

    @property
    def description(self) -> str:
        """What it says of itself, and its host compiler."""
        return f"{run([self.compiler, '--version']).stdout}; {self.host.description}"

    @property
    def compiler(self) -> str:
        """The command."""
        return str(self.folder / "bin/nvcc")

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""
        targets = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in self.architectures]
        definitions = [f"-D{name}" for name in _DEFINITIONS]
        return [f"-ccbin={self.host.compiler}", f"-std={self.host.standard}", *_FLAGS, *definitions, *targets]

    @cached_property
    def known_architectures(self) -> list[str]:
        """Every architecture that this nvcc can compile for."""
        return re.findall(r"^sm_(\w+)$", run([self.compiler, "--list-gpu-code"]).stdout, re.M)

    def require_known_architectures(self) -> None:
        """Check that nvcc knows what it is to compile for.

        Raises:
            UsageError: naming what it does not know.
        """
        # It does not list variants: 90a, 100f.
        unknown = [name for name in self.architectures if name.rstrip("af") not in self.known_architectures]
        if unknown:
            raise UsageError(
                f"--arch {' '.join(unknown)}: this nvcc does not compile for that",
                todo=f"choose among: {', '.join(self.known_architectures)}",
            )


def lay_out_toolkit(base: Base, folder: Path, line: StepLine) -> Path:
    """Bring the toolkit of ``base`` below ``folder``, unless it is there; return where its ``bin`` and ``include`` are.

    Raises:
        FetchError: the wheel asks for no toolkit, pip could not fetch it, or there is no space.
    """
    (metadata,) = base.tree.glob("torch-*.dist-info/METADATA")
    requirement = toolkit_requirement(metadata.read_text(encoding="utf-8").splitlines())
    done = folder / ".complete"
    if done.is_file() and done.read_text(encoding="utf-8") == requirement:
        line.note = "there already"
        return _top(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if free_bytes(folder.parent) < _NEEDED_BYTES:
        raise FetchError(f"{folder.parent}: less than {_NEEDED_BYTES >> 30} GiB are free", todo="free some space")
    partial = folder.with_name(folder.name + ".partial")
    for old in (partial, folder):
        shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as downloads:
        line.update("downloading")
        _download(requirement, Path(downloads))
        for wheel in sorted(Path(downloads).glob("*.whl")):
            line.update(wheel.name)
            _extract(wheel, partial)
    write_atomically(partial / done.name, requirement)
    partial.rename(folder)
    line.note = requirement
    return _top(folder)


def toolkit_requirement(metadata: Iterable[str]) -> str:
    """What pip is asked for, given the lines of a wheel's METADATA: the toolkit of its version with a compiler.

    Raises:
        FetchError: the wheel depends on no toolkit.
    """
    required = (Requirement(line.partition(":")[2]) for line in metadata if line.startswith("Requires-Dist:"))
    for requirement in required:
        if requirement.name == "cuda-toolkit":
            extras = sorted({*requirement.extras, *_TO_COMPILE})
            return f"{requirement.name}[{','.join(extras)}]{requirement.specifier}"
    raise FetchError(
        "the wheel's metadata does not ask for the package cuda-toolkit",
        cause="it is a wheel for CPUs, or of a release that named each package of CUDA by itself",
        todo="set PIN to a pin with a later CUDA wheel",
    )


def _download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--quiet", "--dest", str(folder)]
    try:
        run([*command, requirement], env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    except GraftError as error:
        raise FetchError(
            f"pip could not download {requirement}", cause=error.cause, todo="check the network, and try again"
        ) from error


def _extract(wheel: Path, target: Path) -> None:
    """Extract programs and headers; a program keeps its right to run, which zipfile forgets."""
    with ZipFile(wheel) as archive:
        # nvidia/cu13/include/cuda.h
        members = [m for m in archive.infolist() if m.filename.split("/")[2:3] and m.filename.split("/")[2] in _FOLDERS]
    target.mkdir(exist_ok=True)
    extract(wheel, members, target)
    for member in members:
        mode = member.external_attr >> 16
        if mode & 0o100:
            (target / member.filename).chmod(mode)


def _top(folder: Path) -> Path:
    (nvcc,) = folder.glob("nvidia/*/bin/nvcc")
    return Path(os.path.normpath(nvcc.parent.parent))
