"""nvcc, and the CUDA toolkit that has it: ``CUDA_HOME``, or NVIDIA's packages, which the pin lists and pip installs."""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ..base.base import Base
from ..core.console import WARNING, StepLine, say
from ..core.cuda_settings import NO_KERNELS, CudaSettings
from ..core.errors import CommandError, UsageError
from ..core.files import Layer, held
from ..core.keys import COMPILED
from ..core.layout import store
from ..core.pip import UnavailableError, pip_into
from ..core.process import run
from ..inputs.native import NativeFiles
from ..inputs.pin import TOOLKITS, Pin, platform_options
from ..inputs.toolchain import Toolchain

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
        linked: the toolkit with the libraries, if the host code is for another architecture; else None.
    """

    folder: Path
    host: Toolchain
    architectures: tuple[str, ...]
    linked: Path | None = None

    @cached_property
    def description(self) -> str:
        """The versions of nvcc and its host compiler, and the GPU architectures."""
        return f"{run([self.compiler, '--version']).stdout}; {self.host.description}; {' '.join(self.architectures)}"

    @property
    def compiler(self) -> str:
        """The path of nvcc."""
        return str(self.folder / "bin/nvcc")

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""
        targets = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in self.architectures]
        definitions = [f"-D{name}" for name in _DEFINITIONS]
        loading = [f"-Xcompiler={flag}" for flag in self.host.loading]
        return [f"-ccbin={self.host.compiler}", f"-std={self.host.standard}", *_FLAGS, *loading, *definitions, *targets]

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
        """Return the paths of the libraries ``needed`` that the toolkit has."""
        names = (f"targets/{self.host.architecture.cuda}/lib", "lib", "lib64")
        folders = [(self.linked or self.folder) / name for name in names]
        found = (next((each / name for each in folders if (each / name).is_file()), None) for name in needed)
        return [path for path in found if path]


Compiler: TypeAlias = Toolchain | Nvcc


def sources_for_cuda(native: NativeFiles) -> list[Path]:
    """Return the sources that are compiled only if there is nvcc: CUDA sources, and C++ sources in ``cuda/``."""
    return [file for file in native.cuda if file.suffix in COMPILED]


def find_nvcc(pin: Pin, base: Base, host: Toolchain, wanted: CudaSettings, line: StepLine) -> Nvcc:
    """Return the nvcc for ``base``.

    Raises:
        UnavailableError: there is no toolkit, and pip cannot install one.
    """
    folder = _find_toolkit(pin, base.cuda, wanted.home, line)
    is_native = host.machine == platform.machine()
    linked = None if is_native else _find_toolkit(pin, base.cuda, wanted.home, line, host.machine)
    nvcc = Nvcc(folder, host, wanted.archs.names or base.architectures, linked)
    if not nvcc.architectures:
        raise UsageError(
            f"{base.wheel.name}: it does not contain its GPU architectures",
            todo='name them, as in CUDA_ARCHS="80 90"',
        )
    nvcc.require_known_architectures()
    return nvcc


def _find_toolkit(pin: Pin, cuda: str, home: str, line: StepLine, machine: str = platform.machine()) -> Path:
    """Return the folder of the toolkit of version ``cuda`` for a ``machine``, and set ``line.note`` to its origin.
    ``home``, the value of ``CUDA_HOME``, is used if it has this version.

    Raises:
        UnavailableError: there is no toolkit, and pip cannot install one.
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
        raise UnavailableError(
            f"{pin.path.parent.parent / TOOLKITS}: it has no packages for CUDA {cuda} on {machine}",
            todo=f"set CUDA_HOME to a toolkit of CUDA {cuda}, or add them with `make pin TORCH={pin.version}`",
            brief="not pinned",
        )
    line.note = "there already"

    def add(target: Path) -> None:
        say(f"downloading the CUDA toolkit {cuda}, about 2 GB, for this and later builds", WARNING)
        try:
            pip_into(target, "install", packages, line, "--no-compile", *platform_options(machine))
        except UnavailableError as error:
            error.todo = f"check the network and try again, or set CUDA_HOME to a toolkit of CUDA {cuda}"
            raise
        line.note = f"{len(packages)} packages from pip"

    # Each list of packages has a folder of its own, so that files which compilers are reading do not change.
    content = hashlib.sha256("\n".join(map(" ".join, packages.items())).encode()).hexdigest()
    folder = store() / f"cuda-toolkits/{cuda}-{content[:8]}"
    with held(folder, [Layer(content, add)]):
        (compiler,) = folder.glob("nvidia/*/bin/nvcc")
    return compiler.parent.parent
