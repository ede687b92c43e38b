"""The C++ compiler, and the flags that PyTorch is built with."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ..core.architecture import ARCHITECTURES, Architecture, architecture_of, require_program
from ..core.errors import GraftError, MissingError
from ..core.layout import DEBUG, DEVELOP, LOADED, LOADED_DEBUG, LOADED_SANITIZED, SANITIZED
from ..core.process import UNTRANSLATED, run
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
    "NDEBUG",
    "USE_PTHREADPOOL",
)

# For the folder's own sources, as for Python extensions. PyTorch's own command lines end in -O2.
_OPTIMIZED = ("-O3",)

# This linker is twice as fast, for `make develop`. What ships uses the linker of the official libraries.
FAST_LINKER = "ld.gold"

# For `GRAFT_DEBUG=1`.
DEBUGGING = ("-O0", "-g")

# For libraries that a process loads again after each edit. Each has its own static variables of inline functions, and
# graft_loaded.h records what sources register.
LOADING = ("-fno-gnu-unique", "-DGRAFT_LOADED")

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

_SYSTEM_LIBRARIES = ("libstdc++.so.6", "libc.so.6", "libm.so.6", "libmvec.so.1", "libgcc_s.so.1", "libgomp.so.1")
# The part of the C library that each library has a copy of.
_NOT_SHARED = "libc_nonshared.a"


@dataclass(frozen=True)
class Toolchain:
    """A supported C++ compiler.

    Args:
        compiler: the command.
        description: the versions of compiler, assembler and linker. Another version gives other bytes.
        standard: the C++ standard.
        kind: empty for builds that ship; else the kind of build, its only CPU capability, and the version of a linker
            that only this kind uses.
        sanitizers: the sanitizers' flags.
        debugging: additional flags for the folder's own sources, for a debugger.
        machine: the name of the architecture that it compiles for.
        capabilities: the CPU capabilities that sources in ``cpu/`` are compiled for.
        is_for_edits: whether the objects stay on this machine and are replaced soon.
        loading: additional flags for libraries that a running process loads.
        macros: the macros of the base's own build, such as ``USE_FBGEMM``.
    """

    compiler: str
    description: str
    standard: str
    kind: str = ""
    sanitizers: tuple[str, ...] = ()
    debugging: tuple[str, ...] = ()
    machine: str = field(default_factory=platform.machine)
    capabilities: tuple[str, ...] = field(default_factory=lambda: tuple(ARCHITECTURES[platform.machine()].capabilities))
    is_for_edits: bool = False
    loading: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()

    @property
    def architecture(self) -> Architecture:
        """The architecture that it compiles for."""
        return ARCHITECTURES[self.machine]

    @property
    def has_debug_info(self) -> bool:
        """Whether objects contain the paths of the sources on this machine."""
        return bool(self.sanitizers or self.debugging)

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""
        definitions = [f"-D{name}" for name in sorted({*_DEFINITIONS, *self.architecture.definitions, *self.macros})]
        return [f"-std={self.standard}", *_CXX_FLAGS, *self.loading, *definitions, *self.sanitizers]

    @property
    def has_features(self) -> bool:
        """Whether sources may require features of the processor, with ``cpu-flags``: on x86-64."""
        return self.machine == "x86_64"

    @property
    def optimization(self) -> tuple[str, ...]:
        """Additional flags for the folder's own sources. Sanitizers set their own level."""
        return () if self.sanitizers else _OPTIMIZED

    def capability_flags(self, capability: str) -> list[str]:
        """Return the additional flags for a vectorized source. With sanitizers, their optimization level is used."""
        definitions = [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
        return [*self.architecture.capabilities[capability], *definitions, *self.sanitizers]

    def capability_of(self, flags: Iterable[str]) -> str:
        """Return the CPU capability whose objects get these flags for more processor features: AVX512 if one of them is
        of its family, otherwise AVX2.
        """
        is_of_avx512 = any(re.match("-m(avx512|avx10|amx)", flag) for flag in flags)
        return "AVX512" if is_of_avx512 else "AVX2"

    def of_kind(self, kind: str) -> Toolchain:
        """Return the same compiler for another kind of build."""
        if kind == SANITIZED:
            return replace(self, kind=kind, sanitizers=SANITIZERS)
        if kind == LOADED_SANITIZED:
            loaded = self.of_kind(LOADED)
            return replace(loaded, kind=f"{loaded.kind} {kind}", sanitizers=SANITIZERS)
        if kind in (DEVELOP, DEBUG, LOADED, LOADED_DEBUG):
            flags = DEBUGGING if kind in (DEBUG, LOADED_DEBUG) else ()
            more = LOADING if kind in (LOADED, LOADED_DEBUG) else ()
            only = (self.architecture.capability_for_edits(),)
            linker = _version_of(self.compiler, FAST_LINKER) if shutil.which(self.program(FAST_LINKER)) else ""
            kind = f"{kind} {only[0]} {linker}"
            return replace(self, debugging=flags, capabilities=only, is_for_edits=True, kind=kind, loading=more)
        return self

    @property
    def python_include(self) -> str:
        """The folder that contains Python.h."""
        return sysconfig.get_path("include")

    @property
    def python_configuration(self) -> dict[str, bytes]:
        """Headers that Python.h includes and this machine lacks, if the compiler is for another architecture. Debian's
        Python.h includes the pyconfig.h of an architecture; those of the supported ones do not differ in the parts that
        it uses.
        """
        include, own = Path(self.python_include), str(sysconfig.get_config_var("MULTIARCH"))
        there = include.parent / own / include.name / "pyconfig.h"
        if self.machine == platform.machine() or not there.is_file():
            return {}
        other = own.replace(platform.machine(), self.machine)
        return {f"{other}/{include.name}/{there.name}": there.read_bytes()}

    @cached_property
    def search_path(self) -> list[str]:
        """The folders that the compiler searches for headers after a build's, in order. Missing folders come first."""
        said = run([self.compiler, "-E", "-v", "-x", "c++", "/dev/null"], env=UNTRANSLATED).stdout
        _, _, listed = said.partition("#include <...> search starts here:\n")
        folders = re.findall(r'^ignoring nonexistent directory "(.*)"', said, re.M)
        folders += [line.strip() for line in listed.partition("End of search list.")[0].splitlines()]
        return list(dict.fromkeys(map(os.path.realpath, folders)))  # as compilers name files that they read

    @cached_property
    def system_libraries(self) -> list[Path]:
        """The C and C++ libraries that programs are linked with."""
        sanitizers = SANITIZER_LIBRARIES if self.sanitizers else ()
        return self.libraries((*_SYSTEM_LIBRARIES, self.architecture.loader, *sanitizers))

    @cached_property
    def linked_in(self) -> frozenset[str]:
        """The symbols of the archives that are linked into each library: libgcc.a, for example for checks of processor
        features, and what the C library does not share, such as atexit.
        """
        archives: list[str | Path] = [
            run([self.compiler, "-print-libgcc-file-name"]).stdout.strip(),
            *self.libraries([_NOT_SHARED]),
        ]
        return frozenset(name for archive in archives for name in self.symbols_of(archive))

    def symbols_of(self, archive: str | Path) -> frozenset[str]:
        """Return the symbols that a static library defines."""
        lines = run([self.program("nm"), "--defined-only", "--format=posix", archive], check=False).stdout.splitlines()
        return frozenset(line.split()[0] for line in lines if len(line.split()) > 2)

    def program(self, name: str) -> str:
        """Return the program ``name`` of the compiler's binutils."""
        return run([self.compiler, f"-print-prog-name={name}"]).stdout.strip()

    def libraries(self, names: Iterable[str]) -> list[Path]:
        """Return the paths of the libraries ``names`` that the compiler finds."""
        answers = (run([self.compiler, f"-print-file-name={name}"]).stdout.strip() for name in names)
        return [path for path in map(Path, answers) if path.is_absolute()]


def find_toolchain(pin: Pin, compiler: str = "g++") -> Toolchain:
    """Return the compiler with this name, the value of ``CXX``, if headers of PyTorch can be compiled with it."""
    require_program(compiler)
    try:
        version = run([compiler, "-dumpfullversion", "-dumpversion"]).stdout.strip()
        about = run([compiler, "--version"], env=UNTRANSLATED).stdout.splitlines()[0]
    except (GraftError, IndexError) as error:
        raise MissingError(
            f"the C++ compiler `{compiler}` does not run",
            cause=getattr(error, "cause", ""),
            todo=f"install g++ {pin.gxx} or newer, or set CXX to it",
        ) from error
    if "clang" in about.lower() or not version.split(".")[0].isdigit():
        raise MissingError(
            f"`{compiler}` is not g++ but {about}",
            cause="the official Linux wheels are built with g++, so extensions must be, too",
            todo=f"set CXX to a g++ {pin.gxx} or newer",
        )
    if int(version.split(".")[0]) < pin.gxx:
        raise MissingError(
            f"`{compiler}` is g++ {version}, which is too old for the headers of torch {pin.version.release}",
            cause=f"they need g++ {pin.gxx}",
            todo=f"install g++ {pin.gxx} or newer, or set CXX to it",
        )
    architecture = architecture_of(compiler)
    programs = "; ".join(_version_of(compiler, name) for name in ("as", "ld"))
    return Toolchain(
        compiler,
        f"{about}; {programs}; {architecture.name}",
        pin.standard,
        machine=architecture.name,
        capabilities=tuple(architecture.capabilities),
    )


def _version_of(compiler: str, program: str) -> str:
    """Return the version of a program that the compiler runs: the assembler or a linker."""
    try:
        path = run([compiler, f"-print-prog-name={program}"]).stdout.strip()
        return run([path, "--version"], env=UNTRANSLATED).stdout.splitlines()[0]
    except (GraftError, IndexError) as error:
        raise MissingError(
            f"`{program}`, which the C++ compiler `{compiler}` uses, does not run",
            cause=getattr(error, "cause", ""),
            todo="install binutils, or set CXX to another g++",
        ) from error
