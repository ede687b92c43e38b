"""Compile and link extensions that stay separate libraries. Their sources are compiled in place, as by
torch.utils.cpp_extension, with PyTorch's released headers: editing a native folder recompiles none of them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from ..base.base import Base
from ..base.symbols import SymbolFile, SymbolIndex
from ..core.console import WARNING, StepLine, say
from ..core.cuda_settings import NO_GPU, NO_KERNELS, CudaSettings
from ..core.errors import BuildError, UsageError
from ..core.files import write_if_changed
from ..core.layout import Layout
from ..core.process import run
from ..inputs.libraries import LinkedLibraries
from ..inputs.settings import Extension
from ..inputs.snapshot import Snapshot, hash_of_builder
from ..inputs.toolchain import Toolchain
from . import ninja
from .bundle import bundle
from .commands import CompiledUnit
from .cuda import find_toolkit
from .incremental import outside_of, settle
from .libraries import is_linked, note_of
from .linker import Link, python_library, undefined
from .manifest import InputFiles, Outside, is_outside
from .messages import refuse
from .nvcc import Compiler, Nvcc
from .objects import Objects
from .store import Store, objects_of_all
from .units import CXX, INCLUDES, NVCC, Unit

# The folder of the objects and libraries, in the work folder.
_FOLDER = Path("objects/extensions")

# PyTorch's own headers.
_OF_BASE = tuple(each for each in INCLUDES if is_outside(each))

# The flags that Python and torch.utils.cpp_extension pass, except for those that only affect messages.
_CXX_FLAGS = ("-fPIC", "-fwrapv", "-O3", "-DNDEBUG", "-Wno-psabi")
_NVCC_FLAGS = (
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__"),
    *("-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "-Xcompiler=-fPIC"),
)

# The linker's flags, and the libraries of PyTorch that extensions always load, as by torch.utils.cpp_extension.
_LINK_FLAGS = ("-s", "-Wl,--build-id=sha1")
_LINKED, _LINKED_FOR_CUDA = ("libc10.so", "libtorch.so", "libtorch_cpu.so"), ("libc10_cuda.so", "libtorch_cuda.so")

# How many undefined symbols a warning names.
_SHOWN = 3

# pybind11's compiler, standard library and ABI, in libtorch_python.so. An older torch passes them to extensions.
_PYBIND = re.compile(rb"__pybind11_internals_v\d+(_gcc)(_libstdcpp)(_cxxabi\d+)__")

# The variable with the GPU architectures for torch.utils.cpp_extension.
_LIST = "TORCH_CUDA_ARCH_LIST"

# nvcc's flags for GPU architectures; the value may be the next word.
_ARCHITECTURES = re.compile(r"(-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code)([=\s].*)?", re.S)


@dataclass(frozen=True)
class _Cxx:
    """The C++ compiler, as extensions use it."""

    toolchain: Toolchain

    @property
    def compiler(self) -> str:
        return self.toolchain.compiler

    @property
    def description(self) -> str:
        return self.toolchain.description

    @property
    def flags(self) -> list[str]:
        return [f"-std={self.toolchain.standard}", *_CXX_FLAGS]


class _Nvcc(Nvcc):
    """nvcc, as extensions use it."""

    @property
    def flags(self) -> list[str]:
        targets = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in self.architectures]
        return [f"-ccbin={self.host.compiler}", f"-std={self.host.standard}", *_NVCC_FLAGS, *targets]


@dataclass(frozen=True)
class Extensions:
    """The extensions of a build.

    Args:
        libraries: the linked extensions, and the libraries bundled with them, by path below site-packages.
        names: the paths of the extensions alone.
        outside: the files outside of the build that compilers read.
    """

    libraries: Mapping[str, Path]
    names: Sequence[str]
    outside: Outside


NO_EXTENSIONS = Extensions({}, (), Outside({}))


def build_extensions(
    layout: Layout, snapshot: Snapshot, base: Base, jobs: int, line: StepLine, nvcc: Nvcc | None = None
) -> Extensions:
    """Bring the libraries of extensions up to date: compile the objects that the store lacks, and link. If one has a
    CUDA source, ``nvcc`` is that of ``nvcc_of_extensions``.
    """
    return _Build(layout, snapshot, base, nvcc).libraries(jobs, line)


def check_cuda_of_extensions(
    layout: Layout, snapshot: Snapshot, base: Base, jobs: int, line: StepLine, nvcc: Nvcc
) -> None:
    """Compile the CUDA sources of extensions, and link nothing."""
    _Build(layout, snapshot, base, nvcc).compile_for_cuda(jobs, line)


def have_cuda(snapshot: Snapshot) -> bool:
    """Return whether an extension has a CUDA source."""
    return any(_first_for_cuda(extension) for extension, _ in snapshot.extensions)


def _first_for_cuda(extension: Extension) -> Path | None:
    return next((path for path in extension.sources if path.suffix == ".cu"), None)


def nvcc_of_extensions(snapshot: Snapshot, base: Base, wanted: CudaSettings, found: Nvcc | None) -> Nvcc | None:
    """Return nvcc if an extension has a CUDA source, else None. The operators may need it, too, and have ``found`` it.

    Raises:
        UsageError: nothing can be compiled for CUDA here, or not with the settings ``wanted``.
    """
    for extension, _ in snapshot.extensions:
        if source := _first_for_cuda(extension):
            what, todo = "", "or leave out what is for CUDA"
            if not base.cuda:
                what, todo = f"torch {base.version} is not", f"build for a torch for CUDA, {todo}"
            elif wanted.archs in (NO_KERNELS, NO_GPU):
                what = f"CUDA_ARCHS={wanted.archs} compiles none" if wanted.archs == NO_KERNELS else "no GPU is here"
                todo = f'set CUDA_ARCHS, as in CUDA_ARCHS="80 90", {todo}'
            if what:
                raise UsageError(extension.settings.fault("sources", f"{source} is for CUDA, and {what}"), todo=todo)
            return found or find_toolkit(snapshot, base, wanted)
    return None


def units_of_extensions(layout: Layout, snapshot: Snapshot, base: Base, nvcc: Nvcc | None) -> list[CompiledUnit]:
    """Return the units of extensions, each with its compiler. Without nvcc, none are for CUDA."""
    build = _Build(layout, snapshot, base, nvcc)
    every = [unit for units in build.units.values() for unit in units]
    return [(unit, build.compilers[unit.compiler]) for unit in every if unit.compiler in build.compilers]


class _Build:
    def __init__(self, layout: Layout, snapshot: Snapshot, base: Base, nvcc: Nvcc | None) -> None:
        self._layout = layout
        self._snapshot = snapshot
        self._base = base
        self._toolchain = snapshot.toolchain
        self._nvcc = _Nvcc(nvcc.folder, nvcc.host, nvcc.architectures, nvcc.linked) if nvcc else None
        cxx: Compiler = _Cxx(self._toolchain)  # type: ignore[assignment]  # has all the members that are used
        self.compilers = {CXX: cxx} | ({NVCC: self._nvcc} if self._nvcc else {})
        self.units = {extension.name: list(self._units_of(extension)) for extension, _ in snapshot.extensions}

    def libraries(self, jobs: int, line: StepLine) -> Extensions:
        """Compile the sources and link the extensions."""
        units = [unit for each in self.units.values() for unit in each]
        objects = self._compiled(units, jobs, line)
        suffix = self._base.extension.removeprefix("_C")
        found: dict[str, Path] = {}
        links: dict[str, tuple[Link, str]] = {}
        for extension, libraries in self._snapshot.extensions:
            place = extension.place(suffix)
            target, own = self._work / _FOLDER / "linked" / place, self.units[extension.name]
            contained = bundle(libraries.bundled, target.parent)
            found |= {f"{Path(place).parent}/{name}": path for name, path in contained.items()}
            link = self._link(extension, libraries, target, own)
            links[place] = link, self._digest(link, [objects.found[unit].state for unit in own])
        stale = [link for link, digest in links.values() if not is_linked(link.target, digest)]
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(link_extension, stale))
        for link, digest in links.values():
            write_if_changed(note_of(link.target), digest)
        linked = {place: link.target for place, (link, _) in links.items()}
        return Extensions(found | linked, [*linked], outside_of(objects, linked.values()))

    def compile_for_cuda(self, jobs: int, line: StepLine) -> None:
        """Compile the CUDA sources alone."""
        self._compiled([unit for each in self.units.values() for unit in each if unit.compiler == NVCC], jobs, line)

    @property
    def _work(self) -> Path:
        return self._layout.work

    def _units_of(self, extension: Extension) -> Iterator[Unit]:
        """Yield the units of an extension, in the order of its sources."""
        if not extension.sources:
            return
        first = Path(os.path.commonpath([path.parent for path in extension.sources]))
        folders = dict.fromkeys((first, *extension.settings.include_dirs))
        # Make the paths in objects, such as those in messages of TORCH_CHECK, independent of where the tree lies.
        places = [f"-ffile-prefix-map={path}={extension.name}/{number}" for number, path in enumerate(folders)]
        for number, source in enumerate(extension.sources):
            name = f"{number}-{source.name}.o"
            is_cuda = source.suffix == ".cu"
            words = [*self._flags(extension, source, is_cuda=is_cuda)]
            mapped = [f"-Xcompiler={each}" for each in places] if is_cuda else places
            yield Unit(source, _FOLDER / extension.name / name, (*words, *mapped), is_of_extension=True)

    def _flags(self, extension: Extension, source: Path, *, is_cuda: bool) -> Iterator[str]:
        toolchain, settings = self._toolchain, extension.settings
        yield from (f"-I{each}" for each in (*settings.include_dirs, *self._written, *_OF_BASE))
        yield from ["-Ifixed"] if toolchain.python_configuration else []
        yield f"-I{toolchain.python_include}"
        yield from [f"-I{self._nvcc.folder}/include"] if self._nvcc else []
        own = settings.flags.of_newer_standards(toolchain.standard, is_cuda=is_cuda)
        if source.suffix == ".c":
            yield from ("-x", "c", "-std=gnu11")
            own = tuple(word for word in own if not word.startswith("-std="))
        yield from without_architectures(own)[0] if is_cuda else own
        yield "-DTORCH_API_INCLUDE_EXTENSION_H"
        yield f"-DTORCH_EXTENSION_NAME={extension.name.rpartition('.')[2]}"
        yield "-D_GLIBCXX_USE_CXX11_ABI=1"
        yield from self._of_pybind

    def _notes(self) -> Iterator[str]:
        """Yield a note for each extension whose flags name GPU architectures, since the build's are used instead; and
        on the variable that torch.utils.cpp_extension reads.
        """
        wanted = os.environ.get(_LIST, "")
        if wanted and self._nvcc and have_cuda(self._snapshot) and not self._layout.cuda.archs:
            ours = " ".join(self._nvcc.architectures)
            yield f"{_LIST}={wanted} is not read: compiled for {ours}; CUDA_ARCHS chooses others"
        for extension, _ in self._snapshot.extensions:
            theirs = without_architectures(extension.settings.flags.cuda_cflags)[1]
            if self._nvcc and theirs and _first_for_cuda(extension):
                yield note_of_architectures(extension.name, theirs, self._nvcc.architectures)

    @cached_property
    def _of_pybind(self) -> list[str]:
        """The macros with which torch and extensions share pybind11's objects, if this torch passes them."""
        text = (self._base.tree / "torch/utils/cpp_extension.py").read_text(encoding="utf-8")
        if "_PYBIND11_" not in text:
            return []
        found = _PYBIND.search((self._base.libraries / "libtorch_python.so").read_bytes())
        names = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
        return [f'-DPYBIND11_{name}="{found[n].decode()}"' for n, name in enumerate(names, 1)] if found else []

    def _compiled(self, units: Sequence[Unit], jobs: int, line: StepLine) -> Objects:
        """Compile the objects that the store lacks. Return all objects."""
        layout, snapshot, work = self._layout, self._snapshot, self._work
        files = self._files()
        files.begin()
        store = Store(objects_of_all(), files)
        objects = Objects(units, work, files, store, self.compilers, is_for_edits=False)
        notes = [*self._notes()]

        def attempt(missing: Sequence[Unit]) -> None:
            made = {unit: unit for unit in missing}
            if not missing:
                return
            while notes:
                line.say(notes.pop(0))
            write_if_changed(work / ninja.EXTENSIONS, ninja.text_of(missing, (), self.compilers))
            keep = partial(objects.keep, made)
            is_made, output = ninja.run(layout, snapshot, jobs, line, lambda: False, keep, ninja.EXTENSIONS)
            objects.keep(made)
            if not is_made:
                refuse(output, work, snapshot, [work / folder for folder in _OF_BASE])

        line.note = f"{len(settle(objects, files, line, attempt))} of {len(units)} sources"
        return objects

    @property
    def _written(self) -> tuple[str, ...]:
        """The folder of the headers that are laid over torch's, if there are any."""
        return INCLUDES[:1] if self._snapshot.read.overlay else ()

    def _files(self) -> InputFiles:
        toolchain = self._toolchain
        own = dict.fromkeys(
            str(path) for extension, _ in self._snapshot.extensions for path in extension.settings.include_dirs
        )
        given = [path for path in own if path not in toolchain.search_path]
        installed = [toolchain.python_include, *([str(self._nvcc.folder)] if self._nvcc else [])]
        return InputFiles(self._work, self._written, [*given, *_OF_BASE, *toolchain.search_path], installed, given)

    def _link(self, extension: Extension, libraries: LinkedLibraries, target: Path, units: Iterable[Unit]) -> Link:
        up, torch = "../" * extension.name.count("."), self._base.libraries
        is_for_cuda = self._nvcc and _first_for_cuda(extension)
        needed = self._base.library("lib/libtorch_cuda.so").needed if is_for_cuda else ()
        cuda = self._nvcc.libraries(needed) if self._nvcc else []
        return Link(
            target,
            (*(self._work / unit.target for unit in units), self._layout.objects / "fixed/compatibility.o"),
            *(self._toolchain, torch, _LINK_FLAGS),
            (f"-Wl,-rpath,$ORIGIN:$ORIGIN/{up}torch/lib", "-Wl,--enable-new-dtags", *extension.link_flags),
            tuple(torch / name for name in (*_LINKED, *(_LINKED_FOR_CUDA if cuda else ()))),
            libraries,
            offered=(torch / "libtorch_python.so", *cuda),
        )

    def _digest(self, link: Link, states: Sequence[str]) -> str:
        if not all(states):
            return ""
        loaded = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in (*link.needed, *link.offered)]
        return hashlib.sha256(repr((hash_of_builder(), link, states, loaded)).encode()).hexdigest()


def link_extension(link: Link) -> None:
    """Link an extension, and warn about symbols that no library of the process would define. The loader would report
    them only at the import, or at the first call.
    """
    name, loaded = link.target.name, (*link.needed, *link.offered)
    try:
        link.link()
    except BuildError as error:
        raise BuildError(f"{name}: {error.what.strip()}", todo="correct the sources or libraries") from None
    of_base = [SymbolIndex(path) for path in loaded if path.parent == link.base]
    others = [python_library(), *(path for path in loaded if path.parent != link.base)]
    objects = map(SymbolFile, link.objects)
    if missing := sorted(undefined(objects, link.toolchain, of_base, link.libraries, others)):
        names = run(["c++filt"], stdin="\n".join(missing[:_SHOWN])).stdout.splitlines()
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        say(f"{name}: nothing that it is linked with defines {', '.join(names)}{more}", WARNING)


def without_architectures(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return nvcc's flags without those that name GPU architectures, and the named architectures, such as 90a."""
    kept: list[str] = []
    named: list[str] = []
    waiting = iter(flags)
    for word in waiting:
        if found := _ARCHITECTURES.fullmatch(word):
            value = found[2] or next(waiting, "")
            named += re.findall(r"(?:sm|compute|lto)_(\d+[af]?)", value) or [value.strip("= ")]
        else:
            kept.append(word)
    return kept, [*dict.fromkeys(named)]


def note_of_architectures(name: str, theirs: Sequence[str], ours: Sequence[str]) -> str:
    """Return the note about an extension with flags for the architectures ``theirs`` that is compiled for ``ours``."""
    note = f"{name}: its flags are for the GPU architectures {' '.join(theirs)}; it is compiled for {' '.join(ours)}"
    # Code for 90a uses instructions that 90 lacks.
    special = [each for each in theirs if each[-1:] in ("a", "f") and each[:-1] in ours and each not in ours]
    if not special:
        return note
    wanted = [next((each for each in special if each[:-1] == one), one) for one in ours]
    return f'{note}; for its code for {" ".join(special)}, set CUDA_ARCHS="{" ".join(wanted)}"'
