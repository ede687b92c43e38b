"""Find the translation units of a build: sources of native folders and generated sources, with their flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.base import Base
from ..codegen import FRAGMENTS, NARROW, NARROW_OF_FORMULAS, PARTS
from ..core.files import files_below, lay_out_files
from ..core.layout import SOURCES, Layout
from ..cpp.includes import text_with_headers
from ..cpp.registrations import registrations
from ..inputs.native import NativeFiles, NativeFolders
from ..inputs.toolchain import Toolchain
from .header_views import Views
from .nvcc import DEFINITIONS, Nvcc, sources_for_cuda

# Folders of headers: the native folder's, at its path in PyTorch; new operators'; those that wheels lack; the base's.
INCLUDES = (
    *("src", "generated/include", "operators", "fixed"),
    *("../base/tree/torch/include", "../base/tree/torch/include/torch/csrc/api/include"),
)

# Messages about macros in generated sources are not shown to users; not tracking macros saves time.
_GENERATED = ("-ftrack-macro-expansion=0",)

# Warnings for own sources, without those that inlined headers of PyTorch cause, which its own build leaves out, too.
_WARNINGS = ("-Wall", "-Wno-maybe-uninitialized", "-Wno-unknown-pragmas")

# For generated sources in builds for edits. They save a fifth to a third of compile time. Calls take 3 to 6 % longer.
_QUICK = ("-O1", "-finline-small-functions", "-findirect-inlining", "-fpartial-inlining")
_QUICK_REGISTRATIONS = ("-include", "graft_registered.h")

# Headers for generated code in libraries that a running process loads: they declare PyTorch's Python layer, which
# python.cpp makes available, without including it.
_LIGHT = Path("fixed/light")

# The names of the compilers in the ninja file.
CXX, NVCC = "cxx", "nvcc"

# Calls of intrinsics: of x86, and of ARM's SVE and NEON.
_INTRINSIC = re.compile(r"\b(?:_mm\d*_|__builtin_ia32_|sv\w+_[bfsux]\d|v\w+q?_[bfpsu]\d)\w*\s*\(")

_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Unit:
    """A source to compile.

    Args:
        source: relative to the work folder.
        target: the object file, relative to the work folder.
        flags: additional flags; those of the compiler apply to every source.
        narrow: folders of headers that declare less than the base's and are much faster to parse, relative to the work
            folder. A source that needs more is compiled without them.
        needed: files that must be built first, relative to the work folder.
        is_light: whether it takes half the time of other generated sources.
        is_tried: whether it is compiled only to find errors; the target stays empty.
        is_of_extension: whether it belongs to an extension, whose flags name all folders of headers.
        capability: the CPU capability that it is compiled for; empty if it is compiled once.
        features: the processor features that it needs in addition, by g++'s names.
    """

    source: Path
    target: Path
    flags: tuple[str, ...] = ()
    narrow: tuple[Path, ...] = ()
    needed: tuple[Path, ...] = ()
    is_light: bool = False
    is_tried: bool = False
    is_of_extension: bool = False
    capability: str = ""
    features: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the user wrote the source."""
        return self.source.is_relative_to(SOURCES)

    @property
    def compiler(self) -> str:
        """``cxx`` or ``nvcc``."""
        return NVCC if self.source.suffix == ".cu" else CXX


@dataclass(frozen=True)
class Units:
    """The units of a build, in link order.

    Args:
        fixed: sources that are the same for every native folder, by name.
        library: the operators.
        bindings: the Python bindings.
        cuda: the CUDA kernels; empty if they are not built.
        tried: sources that are compiled only to find errors, for CPU capabilities that no library has.
    """

    fixed: Mapping[str, Unit]
    library: list[Unit]
    bindings: list[Unit]
    cuda: list[Unit]
    tried: Sequence[Unit] = ()

    def named(self, names: Iterable[str]) -> list[Unit]:
        """Look up fixed units by name."""
        return [self.fixed[name] for name in names]


class UnitFinder:
    """Finds the units of ``natives``, whose sources are below ``layout``. Without ``nvcc`` none are for CUDA."""

    def __init__(
        self, layout: Layout, natives: NativeFolders, base: Base, toolchain: Toolchain, nvcc: Nvcc | None = None
    ) -> None:
        self._layout = layout
        self._natives = natives
        self._toolchain = toolchain
        self._nvcc = nvcc
        self._views = Views(base.tree, layout.generated / FRAGMENTS, layout.work / "views")

    def units(self) -> Units:
        """Return the units of the native folders and of their generated sources."""
        native, units = self._natives, self._layout.generated / "units"
        folders = sorted(path.parent for path in units.glob("*/library.cpp"))
        templates = {name.as_posix(): (_TEMPLATES / name).read_bytes() for name in files_below(_TEMPLATES)}
        lay_out_files(self._layout.work / "fixed", templates | self._toolchain.python_configuration)
        native_folder = self._layout.sources
        own = [
            _needing(self._unit(native_folder / name, f"native/{_stem(name)}"), self._cpu_flags(native_folder / name))
            for name in native.sources
        ]
        fixed = {
            name: Unit(Path("fixed", name), self._object(f"fixed/{Path(name).stem}"), (self._python_include,))
            for name in templates
            if name.endswith(".cpp")
        }
        # Registrations run in link order. Derived ones check what the folder registers, so they come later.
        library = [*own, *(unit for folder in folders for unit in self._operators(folder))]
        library += [self._unit(path, f"generated/{path.stem}") for path in sorted(units.glob("*/ATen/UfuncCPU_*.cpp"))]
        vectorized = [(native_folder / name, f"native/{name}") for name in native.vectorized]
        vectorized += [(path, f"generated/{path.name}") for path in sorted(units.glob("*/vectorized/*.cpp"))]
        # After the others; see Architecture.capabilities.
        library += [
            self._for_capability(source, name, capability)
            for capability in self._toolchain.capabilities
            for source, name in vectorized
        ]
        # Of several copies of an inline function, the linker keeps the first. It must run on every processor.
        library.sort(key=lambda unit: bool(unit.features))
        bound = [folder for folder in folders if (folder / "bindings.cpp").is_file()]
        return Units(
            fixed=fixed,
            library=library,
            bindings=[self._generated(folder, "bindings") for folder in bound],
            cuda=self._cuda(native, folders),
            tried=[unit for name in native.vectorized for unit in self._tried(native_folder / name, f"native/{name}")],
        )

    def _tried(self, source: Path, name: str) -> Iterator[Unit]:
        """Yield the units that only find errors in a source with intrinsics, for the CPU capabilities that only a wheel
        has. The compiler rejects an instruction that a capability lacks when it inlines the intrinsic, not when it
        parses it.
        """
        text, toolchain = self._text(source), self._toolchain
        if toolchain.is_for_edits and _INTRINSIC.search(text):
            for capability in toolchain.architecture.capabilities:
                if capability not in toolchain.capabilities:
                    unit = self._for_capability(source, name, capability)
                    yield replace(unit, target=unit.target.with_suffix(".tried"), is_tried=True)

    def _for_capability(self, source: Path, name: str, capability: str) -> Unit:
        """Return the unit of a source for a CPU capability. A build for edits links kernels of one capability. They get
        no extra features, since there are no lower kernels to fall back on.
        """
        toolchain, more = self._toolchain, self._cpu_flags(source)
        unit = self._unit(source, f"{name}.{capability}", toolchain.capability_flags(capability))
        is_only = toolchain.is_for_edits and capability in toolchain.capabilities
        is_meant = toolchain.capability_of(more) == capability and not is_only
        return _needing(replace(unit, capability=capability), more if is_meant else ())

    def _cpu_flags(self, source: Path) -> tuple[str, ...]:
        if not source.is_relative_to(self._layout.sources) or not self._toolchain.has_features:
            return ()
        name = source.relative_to(self._layout.sources)
        folder = self._natives.owner(name)
        return folder.settings.cpu_flags.get(folder.place(name), ())

    def _cuda(self, native: NativeFiles, folders: list[Path]) -> list[Unit]:
        """Return the units of the CUDA kernels. Registrations follow the kernels that they call, as in ``library``."""
        if self._nvcc is None:
            return []
        flags = (*(f"-D{name}" for name in DEFINITIONS), f"-I{self._nvcc.folder}/include")
        own = [
            self._unit(self._layout.sources / name, f"native/{name}", () if name.suffix == ".cu" else flags)
            for name in sources_for_cuda(native)
        ]
        loops = [path for folder in folders for path in sorted((folder / "cuda").glob("*.cu"))]
        own += [self._unit(path, f"generated/{path.name}") for path in loops]
        registered = [folder for folder in folders if (folder / "cuda.cpp").is_file()]
        return [*own, *(self._generated(folder, "cuda", flags) for folder in registered)]

    def _unit(self, source: Path, name: str, flags: Iterable[str] = ()) -> Unit:
        text = self._text(source)
        include = self._view_of(text)
        # With this header, kernels that are registered for PyTorch's operators can be switched off.
        if any(not self._views.is_new(name) for each in registrations(text) for name in each.names[-1:]):
            include += ["-include", "graft_replaced.h"]
        is_own = source.is_relative_to(self._layout.sources)
        own = self._own_flags(source) if is_own else ()
        return Unit(self._relative(source), self._object(name), (*flags, *include, *own))

    def _own_flags(self, source: Path) -> Iterator[str]:
        """Yield the flags of one of the user's sources: those of its folder, then those of this build."""
        is_for_nvcc = source.suffix == ".cu"
        yield from () if is_for_nvcc else self._toolchain.optimization
        folder = self._natives.owner(source.relative_to(self._layout.sources))
        is_strict = "-Werror" in (*folder.settings.flags.cflags, *self._layout.extra.cflags)
        if folder.is_own and not is_for_nvcc and not is_strict:  # PyTorch's headers have warnings of their own
            yield from _WARNINGS
        for extra in (folder.settings.flags, self._layout.extra):
            yield from extra.cuda_cflags if is_for_nvcc else extra.cflags
        below = [SOURCES / name for name in folder.searched]
        if searched := [*below, *folder.searched_elsewhere, *self._layout.extra.include_paths]:
            # Compilers ignore a folder that is repeated. PyTorch's own folders come first, before another PyTorch's.
            yield from (f"-I{each}" for each in (*INCLUDES, *searched))
        yield from () if is_for_nvcc else self._toolchain.debugging

    def _text(self, source: Path) -> str:
        return text_with_headers(self._layout.sources, source, self._natives.searched)

    def _operators(self, folder: Path) -> list[Unit]:
        parts = [kind for kind in PARTS if (folder / f"{kind}.cpp").is_file()]
        kinds = parts if self._toolchain.is_for_edits and parts else ["library"]
        return [self._generated(folder, kind) for kind in kinds]

    def _generated(self, folder: Path, kind: str, flags: Iterable[str] = ()) -> Unit:
        """Return the unit of the generated source ``kind`` in ``folder``, which may include other sources."""
        source, is_loaded = folder / f"{kind}.cpp", bool(self._toolchain.loading)
        special: list[str] = [self._python_include] if kind == "bindings" or is_loaded else []
        if self._toolchain.is_for_edits and not self._toolchain.sanitizers:
            special += _QUICK if kind in ("bindings", "formulas") else (*_QUICK, *_QUICK_REGISTRATIONS)
        own = f"-I{self._relative(folder / 'own')}"
        narrow = [NARROW_OF_FORMULAS, NARROW] if kind in ("formulas", "library") else [NARROW]
        return Unit(
            self._relative(source),
            self._object(f"generated/{folder.name}.{kind}"),
            (*_GENERATED, *special, *flags, own, *self._view_of(text_with_headers(folder, source))),
            (*(self._relative(folder / name) for name in narrow), *([_LIGHT] if is_loaded else [])),
            is_light=kind == "formulas" or (kind == "bindings" and is_loaded),
        )

    def _view_of(self, text: str) -> list[str]:
        """Return the flag for the headers of the new operators that a source with this text uses, if it uses any."""
        view = self._views.of(text)
        return [f"-I{self._relative(view)}"] if view else []

    @property
    def _python_include(self) -> str:
        return f"-I{self._toolchain.python_include}"

    def _object(self, name: str) -> Path:
        return self._relative(self._layout.objects / f"{name}.o")

    def _relative(self, path: Path) -> Path:
        return path.relative_to(self._layout.work)


def _needing(unit: Unit, flags: Iterable[str]) -> Unit:
    """Return a unit with flags for extra processor features."""
    words = tuple(flags)
    return replace(unit, flags=(*unit.flags, *words), features=tuple(word.removeprefix("-m") for word in words))


def _stem(source: Path) -> str:
    """Return the stem of an object. Suffixes other than ``.cpp`` stay: two sources may differ in them alone."""
    return str(source.with_suffix("") if source.suffix == ".cpp" else source)


def link_operators(layout: Layout) -> None:
    """Let compilers find the wheel's new headers of single operators, but not its headers that list all operators."""
    operators = layout.work / "operators/ATen/ops"
    if not operators.is_symlink():
        operators.parent.mkdir(parents=True, exist_ok=True)
        operators.symlink_to("../../generated/wheel/torch/include/ATen/ops")
