"""Compile for CUDA: nvcc, and how a build handles CUDA, given its base, its native folder and this machine."""

from __future__ import annotations

import platform
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..base.base import Base
from ..codegen import KERNELS, MISSING, NO_CUDA
from ..core.console import StepLine, say
from ..core.errors import GraftError, UsageError
from ..core.pip import MissingError
from ..core.process import run
from ..inputs.native import NativeFolders, kernels_for_cuda
from ..inputs.pin import Pin
from ..inputs.snapshot import Snapshot
from ..inputs.toolchain import NO_GPU, NONE, Toolchain, find_toolkit, request, wanted_architectures

# The macros that PyTorch defines for sources of libtorch_cuda.
DEFINITIONS = ("TORCH_CUDA_BUILD_MAIN_LIB", "USE_CUDA")

# PyTorch's own flags for CUDA sources (cmake/Dependencies.cmake, torch/utils/cpp_extension.py).
_FLAGS = (
    "-O3",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    # Calling a host function from a kernel would fail only at run time.
    "-Werror=cross-execution-space-call",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wno-psabi,-Werror=return-type",
)
_DEFINITIONS = (
    *DEFINITIONS,
    "AT_PER_OPERATOR_HEADERS",
    "CUDA_HAS_FP16=1",
    "NDEBUG",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF_OPERATORS__",
)


@dataclass(frozen=True)
class Nvcc:
    """nvcc in the ``folder`` of a toolkit, the C++ compiler for its host code, and the GPU architectures that it
    compiles for, like ``90a``.

    Args:
        linked: the toolkit with the libraries, if that is another: one for the architecture of the host code.
    """

    folder: Path
    host: Toolchain
    architectures: tuple[str, ...]
    linked: Path | None = None

    @cached_property
    def description(self) -> str:
        """The versions that it and its host compiler report."""
        return f"{run([self.compiler, '--version']).stdout}; {self.host.description}; {' '.join(self.architectures)}"

    @property
    def compiler(self) -> str:
        """Its path."""
        return str(self.folder / "bin/nvcc")

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""
        targets = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in self.architectures]
        definitions = [f"-D{name}" for name in _DEFINITIONS]
        return [f"-ccbin={self.host.compiler}", f"-std={self.host.standard}", *_FLAGS, *definitions, *targets]

    def require_known_architectures(self) -> None:
        """Check that nvcc knows the requested architectures.

        Raises:
            UsageError: lists the unknown ones.
        """
        known = re.findall(r"^sm_(\w+)$", run([self.compiler, "--list-gpu-code"]).stdout, re.M)
        # nvcc does not list variants: 90a, 100f.
        unknown = [name for name in self.architectures if name.rstrip("af") not in known]
        if unknown:
            raise UsageError(
                f"CUDA_ARCHS={' '.join(unknown)}: this nvcc does not support it",
                todo=f"choose among: {', '.join(known)}; or {NONE}",
            )

    def libraries(self, needed: tuple[str, ...]) -> list[Path]:
        """Return the toolkit's libraries among those that a library of the base ``needed``."""
        names = (f"targets/{self.host.architecture.cuda}/lib", "lib", "lib64")
        folders = [(self.linked or self.folder) / name for name in names]
        found = (next((each / name for each in folders if (each / name).is_file()), None) for name in needed)
        return [path for path in found if path]


@dataclass(frozen=True)
class Cuda:
    """How a build handles CUDA.

    Args:
        how: what the generator is asked to generate.
        nvcc: the compiler; None if nothing is compiled for CUDA.
        request: the variables that give the same result again; empty if CUDA plays no part in it.
    """

    how: str = NO_CUDA
    nvcc: Nvcc | None = None
    request: str = ""

    @property
    def description(self) -> str:
        """An identifier of the result; empty if CUDA plays no part in it."""
        return "" if self.how == NO_CUDA else f"{self.how} {self.nvcc.description if self.nvcc else ''}"


def plan_cuda(
    snapshot: Snapshot, base: Base, natives: NativeFolders, wanted: str, home: str = "", *, is_required: bool = False
) -> Cuda:
    """Find a compiler for the folder's CUDA kernels. If there is none, print that and continue without, unless it is
    required. ``wanted`` and ``home`` are ``CUDA_ARCHS`` and ``CUDA_HOME``.

    Raises:
        GraftError: the toolkit cannot be used, or there is none and it ``is_required``.
    """
    found = kernels_for_cuda(natives)
    if is_required and not found:
        raise UsageError(f"{natives.title}: it has no CUDA kernels", todo="add a kernel to its folder cuda/")
    if is_required:
        _require_wanted(wanted)
    if not found or not base.cuda:
        if found:
            say(f"      left out, since torch {base.version} has no CUDA: {', '.join(found)}")
        return Cuda()
    if wanted in (NONE, NO_GPU):
        why = f"no GPU here that torch {base.version} supports" if wanted == NO_GPU else f"CUDA_ARCHS={NONE}"
        say(f"      {why}; {_kernels_of(natives)} are left out")
        return Cuda(MISSING, None, request(wanted, home))
    line = StepLine(f"      toolkit of CUDA {base.cuda}:")
    line.update("...")
    start = time.perf_counter()
    try:
        nvcc = find_nvcc(snapshot.pin, base, snapshot.toolchain, wanted, line, home)
    except GraftError as error:
        line.end("none")
        if is_required or not isinstance(error, MissingError):
            raise
        say(f"      CUDA kernels are not built: {error.what}; {error.todo}")
        return Cuda(MISSING, None, MISSING)  # each build searches again
    targets = " ".join(f"sm_{name}" for name in nvcc.architectures)
    line.end(f"{line.note}, for {targets}, {time.perf_counter() - start:.1f} s")
    return Cuda(KERNELS, nvcc, request(wanted, home))


def _require_wanted(wanted: str) -> None:
    if wanted == NONE:
        raise UsageError(f"CUDA_ARCHS={NONE} leaves out all CUDA kernels", todo="unset CUDA_ARCHS")
    if wanted == NO_GPU:
        what = "no GPU here that this torch supports, so all CUDA kernels are left out"
        raise UsageError(what, todo='set CUDA_ARCHS, as in CUDA_ARCHS="80 90"')


def _kernels_of(natives: NativeFolders) -> str:
    count = sum(file.suffix in (".cu", ".cpp") for file in natives.cuda)
    return f"the CUDA kernels of {count} file{'s' * (count > 1)}" if count else "CUDA kernels"


def find_nvcc(pin: Pin, base: Base, host: Toolchain, wanted: str, line: StepLine, home: str = "") -> Nvcc:
    """Return the nvcc for ``base``.

    Raises:
        MissingError: there is no toolkit, and pip cannot have one.
        FetchError: a downloaded package has another hash than the pin.
        UsageError: nvcc does not know an architecture in ``CUDA_ARCHS``.
    """
    folder = find_toolkit(pin, base.cuda, home, line)
    linked = None if host.machine == platform.machine() else find_toolkit(pin, base.cuda, home, line, host.machine)
    nvcc = Nvcc(folder, host, wanted_architectures(wanted) or base.architectures, linked)
    if not nvcc.architectures:
        raise UsageError(
            f"{base.wheel.name}: it does not contain its GPU architectures",
            todo='name them, as in CUDA_ARCHS="80 90"',
        )
    nvcc.require_known_architectures()
    return nvcc
