"""nvcc, which compiles sources for CUDA."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ..base.base import Base
from ..core.console import StepLine
from ..core.cuda_settings import NO_KERNELS, CudaSettings
from ..core.errors import UsageError
from ..core.process import run
from ..inputs.pin import Pin
from ..inputs.toolchain import Toolchain
from ..inputs.toolkit import find_toolkit

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
        """Check that nvcc knows the requested architectures."""
        known = re.findall(r"^sm_(\w+)$", run([self.compiler, "--list-gpu-code"]).stdout, re.M)
        # nvcc does not list variants: 90a, 100f.
        unknown = [name for name in self.architectures if name.rstrip("af") not in known]
        if unknown:
            raise UsageError(
                f"CUDA_ARCHS={' '.join(unknown)}: this nvcc does not support it",
                todo=f"choose among: {', '.join(known)}; or {NO_KERNELS}",
            )

    def libraries(self, needed: tuple[str, ...]) -> list[Path]:
        """Return the toolkit's libraries among those that a library of the base ``needed``."""
        names = (f"targets/{self.host.architecture.cuda}/lib", "lib", "lib64")
        folders = [(self.linked or self.folder) / name for name in names]
        found = (next((each / name for each in folders if (each / name).is_file()), None) for name in needed)
        return [path for path in found if path]


Compiler: TypeAlias = Toolchain | Nvcc


def find_nvcc(pin: Pin, base: Base, host: Toolchain, wanted: CudaSettings, line: StepLine) -> Nvcc:
    """Return the nvcc for ``base``.

    Raises:
        MissingError: there is no toolkit, and pip cannot have one.
    """
    folder = find_toolkit(pin, base.cuda, wanted.home, line)
    is_native = host.machine == platform.machine()
    linked = None if is_native else find_toolkit(pin, base.cuda, wanted.home, line, host.machine)
    nvcc = Nvcc(folder, host, wanted.archs.names or base.architectures, linked)
    if not nvcc.architectures:
        raise UsageError(
            f"{base.wheel.name}: it does not contain its GPU architectures",
            todo='name them, as in CUDA_ARCHS="80 90"',
        )
    nvcc.require_known_architectures()
    return nvcc
