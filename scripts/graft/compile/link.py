"""``python -m graft.compile.link PLAN``: link one library. ninja runs it when one of its inputs changed."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from ..base.base import Base, Library
from ..base.elf import ElfFile
from ..base.symbol_index import SYMBOLS, SymbolIndex, symbol_index
from ..core.errors import GraftError, LinkError
from ..core.files import write_if_changed
from ..core.process import UNTRANSLATED, run
from ..inputs.toolchain import CPU_CAPABILITIES, Toolchain
from .products import Product
from .trampolines import BoundLibrary, bind_hidden, trampoline_table
from .units import Unit

_FLAGS = ("-shared", "-fopenmp", "-Wl,-z,now", "-Wl,--build-id=sha1", "-Wl,--gc-sections")

# Symbols that the linker or the generated table of trampolines defines.
_DEFINED_LATER = frozenset(
    {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "_DYNAMIC"}
    | {"graft_libraries", "graft_slots", "graft_is_python_extension"}
)

# The folder of the linked libraries, in the work folder.
LINKED = Path("objects/linked")


def main(plan: str) -> int:
    """Link the library that the file ``plan`` describes. The current folder is the work folder."""
    fields = json.loads(Path(plan).read_text(encoding="utf-8"))
    try:
        Linker.of(fields).link()
    except GraftError as error:
        print(error)
        return 1
    return 0


def plan_of(product: Product, base: Base, toolchain: Toolchain, native: Path) -> str:
    """Return the text of the plan that ``Linker.of`` reads."""
    units = {kind: [(unit.source, unit.target) for unit in getattr(product, kind)] for kind in ("units", "provided")}
    fields = {"product": {**asdict(product), **units}, "base": asdict(base), "toolchain": asdict(toolchain)}
    return json.dumps({**fields, "native": native}, default=str, indent=1)


class Linker:
    """Links one product. Paths of units are relative to the current folder.

    Args:
        product: the library.
        base: the unpacked base.
        toolchain: the compiler.
        native: the native folder with the sources that errors name.
    """

    def __init__(self, product: Product, base: Base, toolchain: Toolchain, native: Path) -> None:
        self._product = product
        self._base = base
        self._toolchain = toolchain
        self._native = native

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Linker:
        """Return the linker of a plan."""
        product = dict(fields["product"])
        for kind in ("units", "provided"):
            product[kind] = [Unit(Path(source), Path(target)) for source, target in product[kind]]
        product["offered"] = [Path(path) for path in product["offered"]]
        product["like"] = Library(**product["like"])
        base = Base(**{name: Path(path) for name, path in fields["base"].items()})
        return cls(Product(**product), base, Toolchain(**fields["toolchain"]), Path(fields["native"]))

    def link(self) -> Path:
        """Link the library. Return its path.

        Raises:
            LinkError: a symbol is undefined or defined twice.
        """
        product = self._product
        target = LINKED / product.name
        unresolved = self.unresolved()
        offered = {path: ElfFile(path).exported() & unresolved for path in product.offered if unresolved}
        called = [path for path, names in offered.items() if names]
        aliases = self._aliases(unresolved)
        table = self._trampolines(unresolved.difference(aliases, *offered.values()))
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.partial")
        objects = [table, *(unit.target for unit in product.units), *called]
        defined = [f"-Wl,--defsym={name}={other}" for name, other in sorted(aliases.items())]
        done = run([*self._command(partial, objects), *defined], env=UNTRANSLATED, check=False)
        if done.returncode != 0:
            self._refuse(done.stdout)
        partial.replace(target)
        return target

    def _command(self, target: Path, objects: Iterable[Path]) -> list[str | Path]:
        libraries, product, like = self._base.libraries, self._product, self._product.like
        # Sanitizers and debuggers report function names and lines, so nothing is stripped for them.
        flags = [*_FLAGS, *(self._toolchain.sanitizers or self._toolchain.debugging or ["-s"])]
        if self._toolchain.is_for_edits and shutil.which("ld.gold"):
            flags.append("-fuse-ld=gold")  # twice as fast; what ships uses the linker of the official libraries
        command: list[str | Path] = [self._toolchain.compiler, *flags, "-o", target, *objects]
        command += [f"-Wl,-soname,{Path(product.name).name}"]
        command += [f"-Wl,-rpath,{like.rpath}", f"-Wl,{like.rpath_flag}"] if like.rpath else []
        loaded = [libraries / name for name in (*product.bound, *product.linked)]
        loaded += [LINKED / name for name in product.loaded]
        return [*command, "-Wl,--no-as-needed", *loaded, "-Wl,--as-needed", f"-Wl,-rpath-link,{libraries}"]

    def _refuse(self, output: str, cause: str = "") -> NoReturn:
        from .link_messages import of_linker  # tree-sitter, which only this needs

        raise LinkError(of_linker(output.replace("src/ATen/native/", f"{self._native}/"), self._native), cause=cause)

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

    def _trampolines(self, unresolved: Iterable[str]) -> Path:
        """Compile the table that binds the functions that the base's libraries hide."""
        is_extension = self._product.is_python_extension
        table = trampoline_table(self.hidden_functions(unresolved), is_python_extension=is_extension)
        stem = self._product.name.split(".")[0].replace("/", ".")
        source, target = (Path(f"objects/trampolines/{stem}{suffix}") for suffix in (".cpp", ".o"))
        command = [self._toolchain.compiler, *self._toolchain.flags, "-Ifixed"]
        stamp = f"// {' '.join(command)}; {self._toolchain.description}\n"
        # The set of bound functions rarely changes.
        if write_if_changed(source, f"{table}{stamp}") or not target.is_file():
            target.unlink(missing_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            run([*command, "-c", source, "-o", partial])
            partial.replace(target)
        return target

    def unresolved(self) -> set[str]:
        """Return the symbols that the product needs and that neither it nor a library loaded with it exports."""
        product = self._product
        files = [ElfFile(unit.target) for unit in product.units]
        needed = {name for file in files for name in file.undefined()} - _DEFINED_LATER
        needed.difference_update(*(file.defined() for file in files))
        needed.difference_update(*(ElfFile(unit.target).defined(hidden=False) for unit in product.provided))
        for name in product.bound:
            needed -= self._index(name).exported_among(needed)
        visible = [*self._toolchain.system_libraries, *([_python_library()] if product.is_python_extension else [])]
        for path in visible:
            needed -= ElfFile(path).exported()
        return needed - self._toolchain.linked_in

    def hidden_functions(self, unresolved: Iterable[str]) -> list[BoundLibrary]:
        """Return the ones of ``unresolved`` that only the full symbol tables of the base's libraries contain.

        Raises:
            LinkError: a symbol is undefined. The linker cannot detect this: the interpreter's symbols, too, are missing
                until it runs.
        """
        libraries = [self._index(name) for name in self._product.bound]
        bound = bind_hidden(unresolved, libraries)
        missing = set(unresolved).difference(symbol.name for library in bound for symbol in library.symbols)
        if missing:
            lines = [
                f"{unit.source}: undefined reference to `{name}'"
                for unit in self._product.units
                for name in sorted(ElfFile(unit.target).undefined() & missing)
            ]
            text = run(["c++filt"], stdin="\n".join(lines), env=UNTRANSLATED).stdout
            hides = [library.path.name for library in libraries if library.find_defined(missing)]
            cause = f"other libraries cannot use hidden variables of {' and '.join(hides)}" if hides else ""
            self._refuse(text, cause)
        return bound

    @cache  # noqa: B019  # one linker a process
    def _index(self, name: str) -> SymbolIndex:
        return symbol_index(self._base.libraries / name, SYMBOLS)


def _python_library() -> Path:
    """Return the file that exports Python's C API: libpython if it exists, or else the interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = Path(folder or "") / (name or "")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return shared if is_shared and shared.is_file() else Path(sys.executable).resolve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
