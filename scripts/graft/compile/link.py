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
from ..core.errors import LinkError
from ..core.files import write_atomically, write_if_changed
from ..core.layout import REPOSITORY, Layout
from ..core.process import UNTRANSLATED, run
from ..inputs.snapshot import hash_of_builder
from ..inputs.toolchain import CPU_CAPABILITIES, Toolchain
from .cuda import Nvcc
from .ninja import Names
from .trampolines import BoundLibrary, bind_hidden, trampoline_table
from .units import Unit, Units

if TYPE_CHECKING:
    from ..base.symbol_index import SymbolIndex

_FLAGS = ("-shared", "-fopenmp", "-Wl,-z,now", "-Wl,--build-id=sha1", "-Wl,--gc-sections")

# Symbol indexes by build-id, shared by all bases.
_SYMBOLS = REPOSITORY / "build/symbols"

# Symbols that the linker or the generated table of trampolines defines.
_DEFINED_LATER = frozenset(
    {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "_DYNAMIC"}
    | {"graft_libraries", "graft_slots", "graft_is_python_extension"}
)


@dataclass(frozen=True)
class Product:
    """A library to link.

    Args:
        name: its path in the wheel.
        units: the units in it.
        bound: libraries of the base whose functions it calls, exported or hidden.
        like: a library with the same search path for other libraries.
        linked: additional libraries of the base that it loads.
        loaded: libraries of other products that it loads.
        offered: libraries that it loads only if it uses them.
        provided: units of another product that it calls.
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

# Loaded by libtorch.so. It does not link to libtorch.so, since libraries that load each other have no initialization
# order. Its calls are resolved in the running process.
OPERATORS_FOR_CUDA = "torch/lib/libtorch_operators_cuda.so"


def products(units: Units, base: Base, nvcc: Nvcc | None = None) -> list[Product]:
    """Return the libraries of a wheel, and of the tree of ``make develop``.

    In the official wheel ``libtorch.so`` is an empty library that everything loads. Here it contains the operators, so
    that every process has them and every C++ program linked to it can call them.
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
    """Return the libraries of a thin wheel with the package ``name``. torch has loaded everything they call before."""
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
    """Return the library of the CUDA kernels, if there is one."""
    if nvcc is None or not units.cuda:
        return []
    toolkit = nvcc.libraries(base.library(f"lib/{_CUDA}").needed)
    bound = (_CUDA, "libc10_cuda.so", *_OF_TORCH)
    own = [*units.common, *units.cuda]
    return [Product(name, own, bound, like(f"lib/{_CUDA}"), offered=toolkit, provided=units.library)]


class Linker:
    """Links the products of one build.

    Args:
        layout: its folders, which contain the objects.
        base: the unpacked base.
        toolchain: the compiler.
        names: translates file names in messages.
    """

    def __init__(self, layout: Layout, base: Base, toolchain: Toolchain, names: Names) -> None:
        self._layout = layout
        self._base = base
        self._toolchain = toolchain
        self._names = names

    def link(self, products: Sequence[Product]) -> dict[str, Path]:
        """Link every product that is not up to date. Return the libraries by their paths in the wheel.

        Raises:
            LinkError: a symbol is undefined.
        """
        missing = [product for product in products if self._quick_stamp(product) != self._marks(product)[0]]
        # This must precede the threads: numpy parses the index's header with Python's parser, which fails in two
        # threads at once in Python 3.11 ("AST constructor recursion depth mismatch").
        for name in {name for product in missing for name in product.bound}:
            self._index(name)
        # Only products that load a new library wait for it. The extension is linked to the base's libtorch.so, which
        # has the same name as the new one.
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
        """Return the stamps that ``product`` was linked with; empty if it was not linked."""
        mark = self._linked(product.name).with_name(f"{Path(product.name).name}.stamp")
        lines = mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []
        return (lines[0], lines[1]) if len(lines) == 2 else ("", "")

    def _quick_stamp(self, product: Product) -> str:
        """Return a hash of the size and time of all inputs. If it has not changed, nothing needs to be read."""
        files = [self._layout.work / unit.target for unit in (*product.units, *product.provided)]
        files += [self._base.libraries / name for name in product.bound]
        files += [*map(self._linked, product.loaded), *product.offered]
        statuses = [path.stat() for path in files if path.is_file()]
        parts = [f"{status.st_size} {status.st_mtime_ns}" for status in statuses]
        parts += [*map(str, self._command(product, Path("out"), [])), self._toolchain.description]
        return hashlib.sha256("\0".join([*parts, *map(str, files), hash_of_builder()]).encode()).hexdigest()

    def _linked(self, name: str) -> Path:
        return self._layout.objects / "linked" / name

    def _stamp(self, product: Product, objects: Sequence[Path]) -> str:
        """Return a hash of all inputs and of the link command."""
        digest = hashlib.sha256()
        for path in (*objects, *map(self._linked, product.loaded)):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        parts = [*map(str, self._command(product, Path("out"), [])), self._toolchain.description]
        parts += [*(self._index(name).build_id for name in product.bound), *map(str, product.offered)]
        provided = [ElfFile(self._layout.work / unit.target) for unit in product.provided]
        parts += sorted({name for file in provided for name in file.defined(hidden=False)})
        parts.append(hash_of_builder())
        digest.update("\0".join(parts).encode())
        return digest.hexdigest()

    def _command(self, product: Product, target: Path, objects: Sequence[Path]) -> list[str | Path]:
        libraries = self._base.libraries
        # Sanitizers and debuggers report function names and lines, so nothing is stripped for them.
        flags = [*_FLAGS, *(self._toolchain.sanitizers or self._toolchain.debugging or ["-s"])]
        if self._toolchain.is_for_edits and shutil.which("ld.gold"):
            flags.append("-fuse-ld=gold")  # twice as fast; what ships uses the linker of the official libraries
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
        raise LinkError(message, cause=cause, todo="fix the files named above; only those are compiled again")

    def _aliases(self, unresolved: Iterable[str]) -> dict[str, str]:
        """Return the symbols of the kernels for CPU capabilities that are not compiled, each with the symbol to use
        instead.

        They are the static members ``AVX2`` etc. of ``at::native::DispatchStub``, as mangled names.
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
        """Compile the table that binds the functions that ``product`` needs and that the base's libraries hide."""
        bound = self.hidden_functions(product, unresolved)
        stem = product.name.split(".")[0].replace("/", ".")
        source, target = (self._layout.objects / f"trampolines/{stem}{suffix}" for suffix in (".cpp", ".o"))
        table = trampoline_table(bound, is_python_extension=product.is_python_extension)
        command = [self._toolchain.compiler, *self._toolchain.flags, f"-I{self._layout.work / 'fixed'}"]
        stamp = f"// {' '.join(command)}; {self._toolchain.description}\n"
        # The set of bound functions rarely changes.
        if write_if_changed(source, f"{table}{stamp}") or not target.is_file():
            target.unlink(missing_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            run([*command, "-c", source, "-o", partial])
            partial.replace(target)
        return target

    def unresolved(self, product: Product) -> set[str]:
        """Return the symbols that ``product`` needs and that neither it nor a library loaded with it exports."""
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
        """Return the ones of ``unresolved`` that only the full symbol tables of the base's libraries contain.

        Raises:
            LinkError: a symbol is undefined. The linker cannot detect this: the interpreter's symbols, too, are missing
                until it runs.
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
            cause = f"other libraries cannot use hidden variables of {' and '.join(hides)}" if hides else ""
            self._refuse(text.replace("src/ATen/native/", f"{self._names.native}/"), cause)
        return bound

    @cache  # noqa: B019  # one linker a build
    def _index(self, name: str) -> SymbolIndex:
        from ..base.symbol_index import symbol_index  # imports numpy, which is slow

        return symbol_index(self._base.libraries / name, _SYMBOLS)


def _python_library() -> Path:
    """Return the file that exports Python's C API: libpython if it exists, or else the interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = Path(folder or "") / (name or "")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return shared if is_shared and shared.is_file() else Path(sys.executable).resolve()
