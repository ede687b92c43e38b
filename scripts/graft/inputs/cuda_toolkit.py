"""The CUDA toolkit for a base: ``CUDA_HOME``, or NVIDIA's packages, which the pin lists and pip downloads."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from zipfile import ZipFile

from ..base.base import Base
from ..base.tree import extract
from ..core.console import StepLine, say
from ..core.errors import CommandError, FetchError, UsageError
from ..core.files import free_bytes
from ..core.layout import REPOSITORY
from ..core.lock import build_lock
from ..core.process import run
from .pin import TOOLKITS, Pin
from .toolchain import Toolchain

# The packages of all toolkits, and what is unpacked from them.
_NEEDED_BYTES = 8 * 1024**3
_FOLDERS = ("bin", "include", "lib", "nvvm")

# The value of CUDA_ARCHS that compiles no CUDA source.
NONE = "none"

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


class NoToolkitError(FetchError):
    """There is no toolkit, and pip cannot download one."""


@dataclass(frozen=True)
class Nvcc:
    """nvcc and the architectures it compiles for.

    Args:
        folder: the folder of the toolkit.
        host: the C++ compiler for the host code.
        architectures: of GPUs, for example ``90a``.
    """

    folder: Path
    host: Toolchain
    architectures: tuple[str, ...]

    @cached_property
    def description(self) -> str:
        """The versions that it and its host compiler report."""
        return f"{run([self.compiler, '--version']).stdout}; {self.host.description}; {' '.join(self.architectures)}"

    @property
    def compiler(self) -> str:
        """Its path."""
        return str(self.folder / "bin/nvcc")

    @property
    def include(self) -> Path:
        """The folder of CUDA's headers."""
        return self.folder / "include"

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
        """Check that nvcc knows the requested architectures.

        Raises:
            UsageError: lists the unknown ones.
        """
        # nvcc does not list variants: 90a, 100f.
        unknown = [name for name in self.architectures if name.rstrip("af") not in self.known_architectures]
        if unknown:
            raise UsageError(
                f"CUDA_ARCHS={' '.join(unknown)}: this nvcc does not support it",
                todo=f"choose among: {', '.join(self.known_architectures)}; or {NONE}",
            )

    def libraries(self, needed: tuple[str, ...]) -> list[Path]:
        """Return the toolkit's libraries among those that a library of the base ``needed``."""
        folders = [self.folder / name for name in ("lib", "lib64", "targets/x86_64-linux/lib")]
        found = (next((each / name for each in folders if (each / name).is_file()), None) for name in needed)
        return [path for path in found if path]


def wanted_architectures() -> tuple[str, ...]:
    """Parse ``CUDA_ARCHS``, for example ``80 90a``. Empty means the architectures of the base.

    Raises:
        UsageError: it contains something else.
    """
    words = os.environ.get("CUDA_ARCHS", "").replace(",", " ").split()
    names = tuple(word.removeprefix("sm_").replace(".", "") for word in words)
    wrong = [word for word, name in zip(words, names, strict=True) if not re.fullmatch(r"\d{2,3}[af]?", name)]
    if words != [NONE] and wrong:
        raise UsageError(
            f"CUDA_ARCHS={' '.join(words)}: {', '.join(wrong)} is not a GPU architecture",
            todo=f'write them as in CUDA_ARCHS="80 90a", or {NONE} to build no CUDA kernels',
        )
    return names


def request() -> str:
    """Return the variables that decide about the CUDA kernels, in addition to the files of a build."""
    return f"{' '.join(wanted_architectures())} {os.environ.get('CUDA_HOME', '')}"


def architectures_in(requested: str) -> str:
    """Return the value of ``CUDA_ARCHS`` in what ``request`` returned."""
    return " ".join(word for word in requested.split() if re.fullmatch(rf"{NONE}|\d{{2,3}}[af]?", word))


def find_nvcc(pin: Pin, base: Base, host: Toolchain, line: StepLine) -> Nvcc:
    """Return the nvcc for ``base``.

    Raises:
        NoToolkitError: there is no toolkit, and pip could not download one.
        FetchError: a downloaded package has another hash than the pin.
        UsageError: nvcc does not know an architecture in ``CUDA_ARCHS``.
    """
    folder = _toolkit_of_user(base.cuda, line) or _toolkit_of_pin(pin, base.cuda, line)
    nvcc = Nvcc(folder, host, wanted_architectures() or base.architectures)
    if not nvcc.architectures:
        raise UsageError(
            f"{base.wheel.name}: it does not contain its GPU architectures",
            todo='name them, as in CUDA_ARCHS="80 90"',
        )
    nvcc.require_known_architectures()
    return nvcc


def _toolkit_of_user(cuda: str, line: StepLine) -> Path | None:
    """Return the folder in ``CUDA_HOME`` if it is a toolkit of the version ``cuda``."""
    home = os.environ.get("CUDA_HOME", "")
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
    """Return the folder with the pinned packages for ``cuda``, which is created if it does not exist."""
    packages = pin.toolkits.get(cuda)
    if not packages:
        raise NoToolkitError(
            f"{pin.path.parent.parent / TOOLKITS}: it has no packages for CUDA {cuda}",
            todo=f"set CUDA_HOME to a toolkit of CUDA {cuda}, or add them with `make pin TORCH={pin.wheel_version}`",
        )
    name = hashlib.sha256("\n".join(map(" ".join, packages.items())).encode()).hexdigest()[:8]
    folder = REPOSITORY / f"build/cuda-toolkits/{cuda}-{name}"
    with build_lock(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            _lay_out(packages, folder, line)
    line.note = line.note or "there already"
    (compiler,) = folder.glob("nvidia/*/bin/nvcc")
    return compiler.parent.parent


def _lay_out(packages: Mapping[str, str], folder: Path, line: StepLine) -> None:
    """Download ``packages`` and extract them into ``folder``, which exists only once it is complete."""
    if free_bytes(folder.parent) < _NEEDED_BYTES:
        raise FetchError(f"{folder.parent}: less than {_NEEDED_BYTES >> 30} GiB are free", todo="free some space")
    partial, downloads = (folder.with_name(f"{folder.name}.{kind}") for kind in ("partial", "downloads"))
    for left in (partial, downloads):  # left by a build that was killed
        rmtree(left, ignore_errors=True)
    downloads.mkdir()
    try:
        line.update("downloading")
        download(packages, downloads)
        for wheel in sorted(downloads.glob("*.whl")):
            line.update(wheel.name)
            _extract(wheel, partial)
    finally:
        rmtree(downloads, ignore_errors=True)
    partial.rename(folder)
    line.note = f"{len(packages)} packages from pip"


def download(packages: Mapping[str, str], folder: Path) -> None:
    """Download ``packages`` into ``folder`` with pip. Each must have its sha256.

    Raises:
        NoToolkitError: pip failed.
        FetchError: a file has another hash.
    """
    lines = [f"{requirement} --hash=sha256:{sha256}\n" for requirement, sha256 in packages.items()]
    wanted = folder / "requirements.txt"
    wanted.write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    done = run([*command, "--quiet", "--disable-pip-version-check", "--dest", folder, "-r", wanted], check=False)
    if done.returncode != 0:
        kind = FetchError if "DO NOT MATCH THE HASHES" in done.stdout else NoToolkitError
        raise kind(
            "pip could not download the CUDA toolkit",
            cause=done.stdout.strip()[-2000:],
            todo="check the network and try again, or set CUDA_HOME to a toolkit",
        )


def _extract(wheel: Path, target: Path) -> None:
    """Extract programs, headers and libraries. Programs stay executable, which zipfile does not preserve."""
    with ZipFile(wheel) as archive:
        # nvidia/cu13/include/cuda.h
        members = [m for m in archive.infolist() if m.filename.split("/")[2:3] and m.filename.split("/")[2] in _FOLDERS]
    target.mkdir(exist_ok=True)
    extract(wheel, members, target)
    for member in members:
        mode = member.external_attr >> 16
        if mode & 0o100:
            (target / member.filename).chmod(mode)
