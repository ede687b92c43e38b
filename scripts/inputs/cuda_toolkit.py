"""The CUDA toolkit that compiles for a base: ``CUDA_HOME``, or NVIDIA's packages as the pin has them, from pip."""

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
from ..common.console import StepLine, say
from ..common.errors import CommandError, FetchError, UsageError
from ..common.files import free_bytes
from ..common.layout import REPOSITORY
from ..common.lock import build_lock
from ..common.process import run
from .pin import TOOLKITS, Pin
from .toolchain import Toolchain

# All of a toolkit's packages and what is laid out of them.
_NEEDED_BYTES = 8 * 1024**3
_FOLDERS = ("bin", "include", "lib", "nvvm")

# CUDA_ARCHS to compile no CUDA source.
NONE = "none"

# What PyTorch defines for sources of libtorch_cuda.
DEFINITIONS = ("TORCH_CUDA_BUILD_MAIN_LIB", "USE_CUDA")

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
    """There is no toolkit, and pip cannot fetch one."""


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

    @cached_property
    def description(self) -> str:
        """What it says of itself, and its host compiler."""
        return f"{run([self.compiler, '--version']).stdout}; {self.host.description}; {' '.join(self.architectures)}"

    @property
    def compiler(self) -> str:
        """The command."""
        return str(self.folder / "bin/nvcc")

    @property
    def include(self) -> Path:
        """The headers of CUDA."""
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
        """Check that nvcc knows what it is to compile for.

        Raises:
            UsageError: naming what it does not know.
        """
        # It does not list variants: 90a, 100f.
        unknown = [name for name in self.architectures if name.rstrip("af") not in self.known_architectures]
        if unknown:
            raise UsageError(
                f"CUDA_ARCHS={' '.join(unknown)}: this nvcc does not compile for that",
                todo=f"choose among: {', '.join(self.known_architectures)}; or {NONE}",
            )

    def libraries(self, needed: tuple[str, ...]) -> list[Path]:
        """The toolkit's libraries among those that a library of the base ``needed``."""
        folders = [self.folder / name for name in ("lib", "lib64", "targets/x86_64-linux/lib")]
        found = (next((each / name for each in folders if (each / name).is_file()), None) for name in needed)
        return [path for path in found if path]


def wanted_architectures() -> tuple[str, ...]:
    """What ``CUDA_ARCHS`` names, such as ``80 90a``; nothing for those of the base.

    Raises:
        UsageError: it names something else.
    """
    words = os.environ.get("CUDA_ARCHS", "").replace(",", " ").split()
    names = tuple(word.removeprefix("sm_").replace(".", "") for word in words)
    wrong = [word for word, name in zip(words, names, strict=True) if not re.fullmatch(r"\d{2,3}[af]?", name)]
    if words != [NONE] and wrong:
        raise UsageError(
            f"CUDA_ARCHS={' '.join(words)}: {', '.join(wrong)} is no architecture of a GPU",
            todo=f'write them as in CUDA_ARCHS="80 90a", or {NONE} to build no kernels for CUDA',
        )
    return names


def request() -> str:
    """What decides about the kernels for CUDA beyond the files of a build."""
    return f"{' '.join(wanted_architectures())} {os.environ.get('CUDA_HOME', '')}"


def find_nvcc(pin: Pin, base: Base, host: Toolchain, line: StepLine) -> Nvcc:
    """The nvcc that compiles for ``base``.

    Raises:
        NoToolkitError: there is none, and pip could not fetch one.
        FetchError: what pip fetched is not what the pin has.
        UsageError: ``CUDA_ARCHS`` names what nvcc does not know.
    """
    folder = _toolkit_of_user(base.cuda, line) or _toolkit_of_pin(pin, base.cuda, line)
    nvcc = Nvcc(folder, host, wanted_architectures() or base.architectures)
    if not nvcc.architectures:
        raise UsageError(
            f"{base.wheel.name}: it does not tell for which GPU architectures it was built",
            todo='name them, as in CUDA_ARCHS="80 90"',
        )
    nvcc.require_known_architectures()
    return nvcc


def _toolkit_of_user(cuda: str, line: StepLine) -> Path | None:
    """The folder that ``CUDA_HOME`` names, if it is a toolkit of the version ``cuda``."""
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
    say(f"      CUDA_HOME={home} is CUDA {found[1] if found else '?'}, and this torch was built with {cuda}: not used")
    return None


def _toolkit_of_pin(pin: Pin, cuda: str, line: StepLine) -> Path:
    """The folder of the packages that the pins have for ``cuda``, which is made if it is not there."""
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
    """Fetch ``packages`` and extract them into ``folder``, which is there only when it is whole."""
    if free_bytes(folder.parent) < _NEEDED_BYTES:
        raise FetchError(f"{folder.parent}: less than {_NEEDED_BYTES >> 30} GiB are free", todo="free some space")
    partial, downloads = (folder.with_name(f"{folder.name}.{kind}") for kind in ("partial", "downloads"))
    for left in (partial, downloads):  # by a build that was killed
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
    """Let pip fetch ``packages`` into ``folder``, each of which must have its sha256.

    Raises:
        NoToolkitError: pip cannot.
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
            "pip could not fetch the CUDA toolkit",
            cause=done.stdout.strip()[-2000:],
            todo="check the network and try again, or set CUDA_HOME to a toolkit",
        )


def _extract(wheel: Path, target: Path) -> None:
    """Extract programs, headers and libraries; a program keeps its right to run, which zipfile forgets."""
    with ZipFile(wheel) as archive:
        # nvidia/cu13/include/cuda.h
        members = [m for m in archive.infolist() if m.filename.split("/")[2:3] and m.filename.split("/")[2] in _FOLDERS]
    target.mkdir(exist_ok=True)
    extract(wheel, members, target)
    for member in members:
        mode = member.external_attr >> 16
        if mode & 0o100:
            (target / member.filename).chmod(mode)
