"""The C++ compiler and the flags that PyTorch is built with."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..core.errors import GraftError, ToolchainError
from ..core.layout import DEBUG, DEVELOP, SANITIZED
from ..core.process import run
from .pin import Pin

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
_SANITIZER_LIBRARIES = ("libasan.so", "libubsan.so")

_SYSTEM_LIBRARIES = (
    *("libstdc++.so.6", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libgomp.so.1"),
    "ld-linux-x86-64.so.2",  # thread-local variables
)


@dataclass(frozen=True)
class Toolchain:
    """A supported C++ compiler.

    Args:
        compiler: the command.
        description: the versions of compiler and linker. Another version gives other bytes.
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
            return replace(self, debugging=flags, capabilities=(capability,), description=f"{self.description}; {kind}")
        return self

    @property
    def python_include(self) -> str:
        """The folder that contains Python.h."""
        return sysconfig.get_path("include")

    @cached_property
    def system_libraries(self) -> list[Path]:
        """The C and C++ libraries that programs are linked with."""
        return self._libraries(_SYSTEM_LIBRARIES + (_SANITIZER_LIBRARIES if self.sanitizers else ()))

    @cached_property
    def linked_in(self) -> frozenset[str]:
        """The symbols of libgcc.a, which is linked into each library, for example for checks of processor features."""
        archive = run([self.compiler, "-print-libgcc-file-name"]).stdout.strip()
        lines = run(["nm", "--defined-only", "--format=posix", archive], check=False).stdout.splitlines()
        return frozenset(line.split()[0] for line in lines if len(line.split()) > 2)

    def preloaded(self) -> list[Path]:
        """Return the libraries that a program built without sanitizers must preload: the sanitizers and the C++
        library, whose functions they intercept.

        Raises:
            ToolchainError: the compiler does not include them.
        """
        names = (*_SANITIZER_LIBRARIES, "libstdc++.so.6")
        found = self._libraries(names)
        if len(found) < len(names):
            raise ToolchainError(
                f"`{self.compiler}` does not provide {', '.join(names)}",
                todo="install its sanitizers (libasan and libubsan; Debian has them with g++)",
            )
        return found

    def _libraries(self, names: Iterable[str]) -> list[Path]:
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
        about = run([compiler, "--version"]).stdout.splitlines()[0]
        linker = run([compiler, "-Wl,--version"], check=False).stdout.splitlines()[0]
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
    return Toolchain(compiler, f"{about}; {linker}", pin.standard)
