"""Link the libraries of the new wheel: ``libtorch.so`` with the operators, ``torch._C`` with their bindings."""

from __future__ import annotations

import hashlib
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..base.base import Base, Library
from ..base.elf import ElfFile
from ..common.errors import LinkError
from ..common.files import write_atomically, write_if_changed
from ..common.layout import REPOSITORY, Layout
from ..common.process import UNTRANSLATED, run
from ..inputs.cuda_toolkit import Nvcc
from ..inputs.snapshot import hash_of_builder
from ..inputs.toolchain import CPU_CAPABILITIES, Toolchain
from .ninja import Names
from .trampolines import BoundLibrary, bind_hidden, trampoline_table
from .units import Unit, Units

if TYPE_CHECKING:
    from ..base.symbol_index import SymbolIndex

_FLAGS = ("-shared", "-fopenmp", "-Wl,-z,now", "-Wl,--build-id=sha1", "-Wl,--gc-sections")

# Of a library by its build-id, whichever base it is found in.
_SYMBOLS = REPOSITORY / "build/symbols"

# The stages of the builder that decide about what is bound, and how.
_BINDING = ("base", "compile")

# Symbols that the linker itself defines, and those of the generated table of trampolines.
_DEFINED_LATER = frozenset(
    {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "_DYNAMIC"}
    | {"graft_libraries", "graft_slots", "graft_is_python_extension"}
)


@dataclass(frozen=True)
class Product:
    """A library to link.

    Args:
        name: its path in the wheel.
        units: what is in it.
        bound: libraries of the base whose functions it calls, exported or not.
        like: a library that tells where this one looks for others.
        linked: further libraries of the base that are loaded with it.
        loaded: libraries of other products that are loaded with it.
        offered: libraries that are loaded with it if it calls them.
        provided: what is in another product that this one calls.
        is_python_extension: whether Python loads it.
    """

    name: str
    units: Sequence[Unit]
    bound: Sequence[str]
    like: Library
    linked: Sequence[str] = ()
    loaded: Sequence[str] = ()
    offered: Sequence[Path] = ()
    provided: Sequence[Unit] = ()
    is_python_extension: bool = False


_OF_TORCH, _CUDA = ("libtorch_cpu.so", "libc10.so"), "libtorch_cuda.so"

# Loaded by libtorch.so. It names libtorch.so nowhere, since libraries that load each other have no order: what it calls
# there is found in the process.
OPERATORS_FOR_CUDA = "torch/lib/libtorch_operators_cuda.so"


def products(units: Units, base: Base, nvcc: Nvcc | None = None) -> list[Product]:
    """The libraries of a wheel, and of the tree of ``make develop``.

    ``libtorch.so`` is in the official wheel an empty umbrella that everything loads. Here it holds the operators, so
    that every process has them, and every C++ program that links to it can call them.
    """
    umbrella = base.library("lib/libtorch.so")
    cuda = _cuda_products(OPERATORS_FOR_CUDA, base.library, units, base, nvcc)
    library = Product(
        *("torch/lib/libtorch.so", [*units.common, *units.library], _OF_TORCH, umbrella),
        linked=[name for name in umbrella.needed if name not in _OF_TORCH and (base.libraries / name).is_file()],
        loaded=[each.name for each in cuda],
    )
    extension = Product(
        *(f"torch/{base.extension}", [*units.common, *units.module, *units.bindings]),
        *(("libtorch_python.so", *_OF_TORCH), base.library(base.extension)),
        linked=["libtorch.so"],
        provided=units.library,
        is_python_extension=True,
    )
    return [*cuda, library, extension]


def thin_products(name: str, units: Units, base: Base, nvcc: Nvcc | None = None) -> list[Product]:
    """The libraries of a thin wheel, whose package is ``name``: all that they call is loaded with torch before."""
    beside = Library((), "$ORIGIN", "--enable-new-dtags")
    cuda = _cuda_products(f"{name}/lib{name}_cuda.so", lambda _: beside, units, base, nvcc)
    extension = Product(
        *(f"{name}/{base.extension}", [*units.common, *units.library, *units.thin_module, *units.bindings]),
        *(("libtorch_python.so", *_OF_TORCH), beside),
        loaded=[each.name for each in cuda],
        is_python_extension=True,
    )
    return [*cuda, extension]


def _cuda_products(
    name: str, like: Callable[[str], Library], units: Units, base: Base, nvcc: Nvcc | None
) -> list[Product]:
    """The library of the kernels for CUDA, if there is one."""
    if nvcc is None or not units.cuda:
        return []
    toolkit = nvcc.libraries(base.library(f"lib/{_CUDA}").needed)
    bound = (_CUDA, "libc10_cuda.so", *_OF_TORCH)
    own = [*units.common, *units.cuda]
    return [Product(name, own, bound, like(f"lib/{_CUDA}"), offered=toolkit, provided=units.library)]


class Linker:
    """Links the products of one build.

    Args:
        layout: its folders, in which the objects are.
        base: the laid-out base.
        toolchain: the compiler.
        names: how messages name the native folder's files.
    """

    def __init__(self, layout: Layout, base: Base, toolchain: Toolchain, names: Names) -> None:
        self._layout = layout
        self._base = base
        self._toolchain = toolchain
        self._names = names

    def link(self, products: Sequence[Product]) -> dict[str, Path]:
        """Link every product that is not up to date; return the libraries by their paths in the wheel.

        Raises:
            LinkError: a symbol is nowhere to be found.
        """
        missing = [product for product in products if self._quick_stamp(product) != self._marks(product)[0]]
        # Before there are threads: an index is made once, and numpy reads its header with Python's parser, which two
        # threads at once make fail in Python 3.11 ("AST constructor recursion depth mismatch").
        for name in {name for product in missing for name in product.bound}:
            self._index(name)
        # Only who loads a new library waits for it; the extension is linked to the base's libtorch.so, which has the
        # new one's name.
        with ThreadPoolExecutor(len(products)) as pool:
            first = [product for product in products if not product.loaded]
            linked = dict(zip((each.name for each in first), pool.map(self._link, first), strict=True))
        return {each.name: linked.get(each.name) or self._link(each) for each in products}

    def _link(self, product: Product) -> Path:
        target = self._linked(product.name)
        objects = [self._layout.work / unit.target for unit in product.units]
        quick = self._quick_stamp(product)
        if target.is_file() and self._marks(product)[0] == quick:
            return target
        stamp, mark = self._stamp(product, objects), target.with_name(f"{target.name}.stamp")
        if target.is_file() and self._marks(product)[1] == stamp:
            write_atomically(mark, f"{quick}\n{stamp}")
            return target
        unresolved = self.unresolved(product)
        offered = {path: ElfFile(path).exported() & unresolved for path in product.offered if unresolved}
        called = [path for path, names in offered.items() if names]
        aliases = self._aliases(unresolved)
        table = self._trampolines(product, unresolved.difference(aliases, *offered.values()))
        target.parent.mkdir(parents=True, exist_ok=True)
        command = self._command(product, target.with_name(f"{target.name}.partial"), [table, *objects, *called])
        command += [f"-Wl,--defsym={name}={other}" for name, other in sorted(aliases.items())]
        done = run(command, env=UNTRANSLATED, check=False)
        if done.returncode != 0:
            self._refuse(done.stdout)
        mark.unlink(missing_ok=True)
        target.with_name(f"{target.name}.partial").replace(target)
        write_atomically(mark, f"{quick}\n{stamp}")
        return target

    def _marks(self, product: Product) -> tuple[str, str]:
        """The stamps with which ``product`` was linked; empty if it was not."""
        mark = self._linked(product.name).with_name(f"{Path(product.name).name}.stamp")
        lines = mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []
        return (lines[0], lines[1]) if len(lines) == 2 else ("", "")

    def _quick_stamp(self, product: Product) -> str:
        """A hash of size and time of all that is linked: as long as it holds, nothing need be read."""
        files = [self._layout.work / unit.target for unit in (*product.units, *product.provided)]
        files += [self._base.libraries / name for name in product.bound]
        files += [*map(self._linked, product.loaded), *product.offered]
        statuses = [path.stat() for path in files if path.is_file()]
        parts = [f"{status.st_size} {status.st_mtime_ns}" for status in statuses]
        parts += [*map(str, self._command(product, Path("out"), [])), self._toolchain.description]
        return hashlib.sha256("\0".join([*parts, *map(str, files), hash_of_builder(_BINDING)]).encode()).hexdigest()

    def _linked(self, name: str) -> Path:
        return self._layout.objects / "linked" / name

    def _stamp(self, product: Product, objects: Sequence[Path]) -> str:
        """A hash of all that is linked, and how."""
        digest = hashlib.sha256()
        for path in (*objects, *map(self._linked, product.loaded)):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        parts = [*map(str, self._command(product, Path("out"), [])), self._toolchain.description]
        parts += [*(self._index(name).build_id for name in product.bound), *map(str, product.offered)]
        provided = [ElfFile(self._layout.work / unit.target) for unit in product.provided]
        parts += sorted({name for file in provided for name in file.defined(hidden=False)})
        parts.append(hash_of_builder(_BINDING))
        digest.update("\0".join(parts).encode())
        return digest.hexdigest()

    def _command(self, product: Product, target: Path, objects: Sequence[Path]) -> list[str | Path]:
        libraries = self._base.libraries
        # What a sanitizer or a debugger finds is reported with function and line, so there nothing is stripped.
        flags = [*_FLAGS, *(self._toolchain.sanitizers or self._toolchain.debugging or ["-s"])]
        if self._toolchain.is_for_edits and shutil.which("ld.gold"):
            flags.append("-fuse-ld=gold")  # half the time; what ships is linked by the linker of the official libraries
        command: list[str | Path] = [self._toolchain.compiler, *flags, "-o", target, *objects]
        like = product.like
        command += [f"-Wl,-soname,{Path(product.name).name}"]
        command += [f"-Wl,-rpath,{like.rpath}", f"-Wl,{like.rpath_flag}"] if like.rpath else []
        loaded = [*(libraries / name for name in (*product.bound, *product.linked)), *map(self._linked, product.loaded)]
        command += ["-Wl,--no-as-needed", *loaded, "-Wl,--as-needed", f"-Wl,-rpath-link,{libraries}"]
        return command

    def _refuse(self, output: str, cause: str = "") -> NoReturn:
        from .blame_linker import of_linker  # tree-sitter, which only this needs

        message = self._names.translate(of_linker(output, self._names.native))
        raise LinkError(message, cause=cause, todo="correct the files that are named; only those are compiled again")

    def _aliases(self, unresolved: Iterable[str]) -> dict[str, str]:
        """The kernel that a dispatch stub looks up for a CPU capability that is not compiled, and the one it gets.

        They are the static members ``AVX2`` and the like of ``at::native::DispatchStub``, by their mangled names.
        """
        if not self._toolchain.is_for_edits:
            return {}
        (only,) = self._toolchain.capabilities
        suffixes = [f"{len(name)}{name}E" for name in CPU_CAPABILITIES if name != only]
        return {
            name: f"{name.removesuffix(suffix)}{len(only)}{only}E"
            for suffix in suffixes
            for name in unresolved
            if name.startswith("_ZN2at6native12DispatchStubI") and name.endswith(suffix)
        }

    def _trampolines(self, product: Product, unresolved: Iterable[str]) -> Path:
        """Compile the table that binds what ``product`` needs and its base libraries hide."""
        bound = self.hidden_functions(product, unresolved)
        stem = product.name.split(".")[0].replace("/", ".")
        source, target = (self._layout.objects / f"trampolines/{stem}{suffix}" for suffix in (".cpp", ".o"))
        table = trampoline_table(bound, is_python_extension=product.is_python_extension)
        command = [self._toolchain.compiler, *self._toolchain.flags, f"-I{self._layout.work / 'fixed'}"]
        stamp = f"// {' '.join(command)}; {self._toolchain.description}\n"
        # Which functions are bound changes seldom.
        if write_if_changed(source, f"{table}{stamp}") or not target.is_file():
            target.unlink(missing_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            run([*command, "-c", source, "-o", partial])
            partial.replace(target)
        return target

    def unresolved(self, product: Product) -> set[str]:
        """What ``product`` needs and neither it nor a library that is surely loaded has for all to see."""
        files = [ElfFile(self._layout.work / unit.target) for unit in product.units]
        needed = {name for file in files for name in file.undefined()} - _DEFINED_LATER
        others = [ElfFile(self._layout.work / unit.target) for unit in product.provided]
        needed.difference_update(*(file.defined() for file in files))
        needed.difference_update(*(file.defined(hidden=False) for file in others))
        for name in product.bound:
            needed -= self._index(name).exported_among(needed)
        visible = [*self._toolchain.system_libraries, *([_python_library()] if product.is_python_extension else [])]
        for path in visible:
            needed -= ElfFile(path).exported()
        return needed - self._toolchain.linked_in

    def hidden_functions(self, product: Product, unresolved: Iterable[str]) -> list[BoundLibrary]:
        """Those of ``unresolved`` that only the full symbol tables of the base's libraries tell of.

        Raises:
            LinkError: a symbol is nowhere. The linker cannot tell: the interpreter's are missing, too, until it runs.
        """
        libraries = [self._index(name) for name in product.bound]
        bound = bind_hidden(unresolved, libraries)
        missing = set(unresolved).difference(symbol.name for library in bound for symbol in library.symbols)
        if missing:
            lines = [
                f"{unit.source}: undefined reference to `{name}'"
                for unit in product.units
                for name in sorted(ElfFile(self._layout.work / unit.target).undefined() & missing)
            ]
            text = run(["c++filt"], stdin="\n".join(lines), env=UNTRANSLATED).stdout
            hides = [library.path.name for library in libraries if library.find_defined(missing)]
            cause = f"{' and '.join(hides)} hides variables, which only its own code can reach" if hides else ""
            self._refuse(text.replace("src/ATen/native/", f"{self._names.native}/"), cause)
        return bound

    @cache  # noqa: B019  # one linker a build
    def _index(self, name: str) -> SymbolIndex:
        from ..base.symbol_index import symbol_index  # numpy, which takes its time

        return symbol_index(self._base.libraries / name, _SYMBOLS)


def _python_library() -> Path:
    """The file that exports Python's C interface: libpython where there is one, or else the interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = Path(folder or "") / (name or "")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return shared if is_shared and shared.is_file() else Path(sys.executable).resolve()
