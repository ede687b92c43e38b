"""The C++ compiler and the flags that PyTorch is built with; and the CUDA toolkit: ``CUDA_HOME``, or NVIDIA's packages,
which the pin lists and pip installs.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..core.console import StepLine, say
from ..core.errors import CommandError, GraftError, ToolchainError, UsageError
from ..core.files import Layer, held
from ..core.layout import DEBUG, DEVELOP, HOME, SANITIZED
from ..core.pip import MissingError, pip_into
from ..core.process import UNTRANSLATED, run
from .pin import TOOLKITS, Pin

# The value of CUDA_ARCHS that compiles no CUDA source.
NONE = "none"

# The official libraries' flags that affect generated code; `torch.__config__.show()` prints all.
_CXX_FLAGS = (
    "-O2",
    "-fPIC",
    "-fopenmp",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-Werror=return-type",
    # No garbage collection in the compiler below 4 GB of memory: this saves a tenth of the time.
    "--param=ggc-min-heapsize=4000000",
)
_DEFINITIONS = (
    "_GLIBCXX_USE_CXX11_ABI=1",
    "AT_PER_OPERATOR_HEADERS",
    "CAFFE2_BUILD_MAIN_LIB",
    "HAVE_AVX2_CPU_DEFINITION",
    "HAVE_AVX512_CPU_DEFINITION",
    "NDEBUG",
    "USE_PTHREADPOOL",
)

# PyTorch's cmake/Codegen.cmake. DEFAULT comes first: of several copies of an inline function, the linker keeps the
# first, and that must run on every processor.
CPU_CAPABILITIES: dict[str, tuple[str, ...]] = {
    "DEFAULT": ("-O3",),
    "AVX2": (
        "-O3",
        "-mavx2",
        "-mfma",
        "-mf16c",
        "-mno-avx256-split-unaligned-load",
        "-mno-avx256-split-unaligned-store",
    ),
    "AVX512": ("-O3", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"),
}

# The processor features that AVX2 needs (ATen/native/DispatchStub.cpp), by their names in Linux.
_AVX2 = {"avx2", "fma", "f16c"}

# Twice as fast, for `make develop`; what ships uses the linker of the official libraries.
FAST_LINKER = "ld.gold"

# For `GRAFT_DEBUG=1`.
DEBUGGING = ("-O0", "-g")

# For `make test-sanitize`. The program continues after a finding, so that one run reports all. Checking the class of an
# object (vptr) needs type information that the base's libraries hide.
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fsanitize-recover=address,undefined",
    "-fno-sanitize=vptr",
    "-fno-omit-frame-pointer",
    "-O1",
    "-g1",
)
SANITIZER_LIBRARIES = ("libasan.so", "libubsan.so")

_SYSTEM_LIBRARIES = (
    *("libstdc++.so.6", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libgomp.so.1"),
    "ld-linux-x86-64.so.2",  # thread-local variables
)


@dataclass(frozen=True)
class Toolchain:
    """A supported C++ compiler.

    Args:
        compiler: the command.
        description: the versions of compiler, assembler and linker. Another version gives other bytes.
        standard: the C++ standard.
        sanitizers: the sanitizers' flags.
        debugging: additional flags for the folder's own sources, for a debugger.
        capabilities: the CPU capabilities that sources in ``cpu/`` are compiled for.
    """

    compiler: str
    description: str
    standard: str
    sanitizers: tuple[str, ...] = ()
    debugging: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = tuple(CPU_CAPABILITIES)

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""
        return [f"-std={self.standard}", *_CXX_FLAGS, *(f"-D{name}" for name in _DEFINITIONS), *self.sanitizers]

    def capability_flags(self, capability: str) -> list[str]:
        """Return the additional flags for a vectorized source. With sanitizers, their optimization level is used."""
        definitions = [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
        return [*CPU_CAPABILITIES[capability], *definitions, *self.sanitizers]

    @property
    def is_for_edits(self) -> bool:
        """Whether the objects stay on this machine and are replaced soon."""
        return len(self.capabilities) < len(CPU_CAPABILITIES)

    def of_kind(self, kind: str) -> Toolchain:
        """Return the same compiler for another kind of build."""
        if kind == SANITIZED:
            return replace(self, description=f"{self.description}; {' '.join(SANITIZERS)}", sanitizers=SANITIZERS)
        if kind in (DEVELOP, DEBUG):
            flags = DEBUGGING if kind == DEBUG else ()
            capability = capability_for_edits()
            linker = _version_of(self.compiler, FAST_LINKER) if shutil.which(FAST_LINKER) else ""
            description = f"{self.description}; {linker}; {kind}"
            return replace(self, debugging=flags, capabilities=(capability,), description=description)
        return self

    @property
    def python_include(self) -> str:
        """The folder that contains Python.h."""
        return sysconfig.get_path("include")

    @cached_property
    def system_libraries(self) -> list[Path]:
        """The C and C++ libraries that programs are linked with."""
        return self.libraries(_SYSTEM_LIBRARIES + (SANITIZER_LIBRARIES if self.sanitizers else ()))

    @cached_property
    def linked_in(self) -> frozenset[str]:
        """The symbols of libgcc.a, which is linked into each library, for example for checks of processor features."""
        archive = run([self.compiler, "-print-libgcc-file-name"]).stdout.strip()
        lines = run(["nm", "--defined-only", "--format=posix", archive], check=False).stdout.splitlines()
        return frozenset(line.split()[0] for line in lines if len(line.split()) > 2)

    def libraries(self, names: Iterable[str]) -> list[Path]:
        """Return those of the libraries ``names`` that the compiler has."""
        answers = (run([self.compiler, f"-print-file-name={name}"]).stdout.strip() for name in names)
        return [path for path in map(Path, answers) if path.is_absolute()]


def capability_for_edits() -> str:
    """Return the one of ``CPU_CAPABILITIES`` that runs here and gives the best result for its compile time: AVX512
    takes half as long again.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "DEFAULT"
    features = set(text.partition("flags")[2].partition("\n")[0].split())
    return "AVX2" if features >= _AVX2 else "DEFAULT"


def find_toolchain(pin: Pin, compiler: str = "g++") -> Toolchain:
    """Return the compiler with this name, the value of ``CXX``.

    Raises:
        ToolchainError: it is missing, too old or not g++.
    """
    try:
        version = run([compiler, "-dumpfullversion", "-dumpversion"]).stdout.strip()
        about = run([compiler, "--version"], env=UNTRANSLATED).stdout.splitlines()[0]
    except (GraftError, IndexError) as error:
        raise ToolchainError(
            f"the C++ compiler `{compiler}` does not run",
            cause=getattr(error, "cause", ""),
            todo=f"install g++ {pin.gxx} or newer, or set CXX to it",
        ) from error
    if "clang" in about.lower() or not version.split(".")[0].isdigit():
        raise ToolchainError(
            f"`{compiler}` is not g++ but {about}",
            cause="the official Linux wheels are built with g++, so extensions must be, too",
            todo=f"set CXX to a g++ {pin.gxx} or newer",
        )
    if int(version.split(".")[0]) < pin.gxx:
        raise ToolchainError(
            f"`{compiler}` is g++ {version}, which is too old for the headers of torch {pin.version.release}",
            cause=f"they need g++ {pin.gxx}",
            todo=f"install g++ {pin.gxx} or newer, or set CXX to it",
        )
    return Toolchain(compiler, f"{about}; {_version_of(compiler, 'as')}; {_version_of(compiler, 'ld')}", pin.standard)


def _version_of(compiler: str, program: str) -> str:
    """Return what a program that the compiler runs says of itself: the assembler or the linker.

    Raises:
        ToolchainError: it does not run.
    """
    try:
        path = run([compiler, f"-print-prog-name={program}"]).stdout.strip()
        return run([path, "--version"], env=UNTRANSLATED).stdout.splitlines()[0]
    except (GraftError, IndexError) as error:
        raise ToolchainError(
            f"`{program}`, which the C++ compiler `{compiler}` uses, does not run",
            cause=getattr(error, "cause", ""),
            todo="install binutils, or set CXX to another g++",
        ) from error


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
    folder = HOME / f"cuda-toolkits/{cuda}-{content[:8]}"
    with held(folder, [Layer(content, add)]):
        (compiler,) = folder.glob("nvidia/*/bin/nvcc")
    return compiler.parent.parent
