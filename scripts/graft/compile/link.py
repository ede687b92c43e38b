"""``python -m graft.compile.link PLAN``: link one library. ninja runs it for each one that `Libraries` finds stale."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ..base.symbols import DATA, EXPORTED, SymbolFile, SymbolIndex
from ..core.errors import BuildError, GraftError
from ..core.files import write_if_changed
from ..core.layout import SOURCES
from ..core.process import run
from ..inputs.helpers import MANGLED, helpers_of, is_same
from ..inputs.native import NativeFolders, saved_natives
from ..inputs.toolchain import FAST_LINKER
from .guards import Guard, guarded_object, guards_of, is_guarded, variants_of
from .initializers import leave_initializers
from .link_messages import explain_repeated, explain_undefined
from .linker import Link, python_library, undefined
from .products import LINKED, LinkPlan
from .stubs import StubBindings, bindings_of
from .trampolines import Bound, bind_hidden, trampoline_table
from .units import Unit

_FLAGS = ("-fopenmp", "-Wl,-z,now", "-Wl,--build-id=sha1", "-Wl,--gc-sections")


def main(plan: str) -> int:
    """Link the library that the file ``plan`` describes. The current folder is the work folder."""
    try:
        Linker(LinkPlan.read(Path(plan))).link()
    except GraftError as error:
        print(error)
        return 1
    return 0


class Linker:
    """Links one library. Paths of units are relative to the current folder."""

    def __init__(self, plan: LinkPlan) -> None:
        self._product = plan.product
        self._libraries, self._note = plan.libraries, plan.natives
        self._toolchain = plan.toolchain

    def link(self) -> Path:
        """Link the library. Return its path."""
        target = self._product.path
        stubs = self.stubs()
        unresolved = self.unresolved().difference(each.symbol for of in stubs.values() for each in of.stock)
        offered = {path: SymbolFile(path).exported() & unresolved for path in self._product.offered if unresolved}
        called = [path for path, names in offered.items() if names]
        aliases = self._aliases(unresolved)
        guards = guards_of(self._product.units)
        table = self._compiled_table(self.bound(unresolved.difference(aliases, *offered.values())), stubs, guards)
        objects = [table, *(self._object_of(unit, guards) for unit in self._product.units), *called]
        defined = [f"-Wl,--defsym={name}={other}" for name, other in sorted(aliases.items())]
        # Make symbols that the base exports, too, local: the loader would resolve this library's uses to the base's.
        own = target.with_name(f"{target.name}.map")
        write_if_changed(own, "".join(["{\n  local:\n", *(f"    {name};\n" for name in self._in_both), "};\n"]))
        defined += [f"-Wl,--version-script={own}"] if self._in_both else []
        self._link(objects, defined).link(*([leave_initializers] if self._product.is_loaded else []))
        return target

    def _link(self, objects: Sequence[Path], defined: Iterable[str]) -> Link:
        product, like, own = self._product, self._product.like, self._product.libraries
        # Sanitizers and debuggers report function names and lines, so nothing is stripped for them.
        flags = [*_FLAGS, *(self._toolchain.sanitizers or self._toolchain.debugging or ["-s"])]
        if self._toolchain.is_for_edits and shutil.which(self._toolchain.program(FAST_LINKER)):
            flags.append("-fuse-ld=gold")
        options = [f"-Wl,-soname,{Path(product.name).name}"]
        options += [f"-Wl,-rpath,{like.rpath}", f"-Wl,{like.rpath_flag}"] if like.rpath else []
        needed = [self._libraries / name for name in (*product.bound, *product.linked)]
        needed += [LINKED / name for name in product.loaded]
        beside = ["-Wl,-rpath,$ORIGIN"] if own.bundled and not like.rpath else []
        return Link(
            *(product.path, objects, self._toolchain, self._libraries, flags, options),
            needed=needed,
            libraries=own,
            last=(*beside, *defined),
        )

    @cached_property
    def _objects(self) -> list[tuple[Unit, SymbolFile]]:
        return [(unit, SymbolFile(unit.target)) for unit in self._product.units]

    @cached_property
    def _bound(self) -> list[SymbolIndex]:
        return [SymbolIndex(self._libraries / name) for name in self._product.bound]

    @cached_property
    def _in_both(self) -> list[str]:
        """The strong symbols that both the product and a library of the base export."""
        own = {name for _, file in self._objects for name in file.defined(weak=False, hidden=False)}
        return sorted(name for library in self._bound for name in library.find(own, EXPORTED))

    def stubs(self) -> dict[str, StubBindings]:
        """Return the kernels and stubs that both the product and the base have, by the base's library."""
        sizes: dict[str, int] = {}
        names: set[str] = set()
        for _, file in self._objects:
            sizes |= file.sizes()
            names |= file.defined() | file.undefined()
        return {each.name: bindings_of(each, names, sizes, self._toolchain) for each in self._bound}

    def unresolved(self) -> set[str]:
        """Return the symbols that the product uses, but neither defines nor finds exported by another library.

        Raises:
            BuildError: the product defines a symbol twice.
        """
        owners: dict[str, list[Unit]] = {}
        for unit, file in self._objects:
            for name in file.defined(weak=False):
                owners.setdefault(name, []).append(unit)
        for unit, file in self._objects:
            for name in self._of_all_capabilities(unit, file):
                owners[name].append(unit)
        if repeated := {name: units for name, units in owners.items() if len(units) > 1}:
            raise BuildError(explain_repeated(self._named(repeated), self._natives))
        objects = [file for _, file in self._objects]
        python = [python_library()] if self._product.is_python_extension else []
        needed = undefined(objects, self._toolchain, self._bound, self._product.libraries, python)
        return needed.difference(*(SymbolFile(unit.target).defined(hidden=False) for unit in self._product.provided))

    def _of_all_capabilities(self, unit: Unit, file: SymbolFile) -> Iterator[str]:
        """Yield the symbols of ``unit`` that a build for several CPU capabilities would define more than once."""
        capability = self._toolchain.capabilities[0]
        if self._toolchain.is_for_edits and unit.capability:
            # Members of DispatchStub, and names in a capability's namespace, contain its name, so they differ.
            yield from (name for name in file.defined(weak=False) if f"{len(capability)}{capability}" not in name)

    def bound(self, unresolved: Iterable[str]) -> list[Bound]:
        """Find ``unresolved`` symbols among the hidden functions of the base's libraries, and check that all are found.
        The linker cannot check this: Python's symbols are undefined, too, until it loads the library.
        """
        bound = bind_hidden(unresolved, self._bound)
        if missing := set(unresolved).difference(*(functions for _, functions in bound)):
            # A trampoline cannot bind a variable, since code accesses it without a call.
            hides = [library.name for library in self._bound if library.find(missing, DATA)]
            cause = f"other libraries cannot use hidden variables of {' and '.join(hides)}" if hides else ""
            needs = [(unit, file.undefined()) for unit, file in self._objects]
            callers = {name: [unit for unit, names in needs if name in names] for name in sorted(missing)}
            raise BuildError(explain_undefined(self._named(callers), self._natives), cause=cause)
        self._require_own_helpers(name for _, functions in bound for name in functions)
        return bound

    def _require_own_helpers(self, bound: Iterable[str]) -> None:
        """Check that no formula calls PyTorch's function where a folder defines one. The earlier check of the folder
        compares only names of types, and does not see which instantiations a template has.
        """
        symbols = [name for name in bound if name.startswith(MANGLED)]
        own = helpers_of(self._natives).defined if symbols else ()
        for function in self._named(dict.fromkeys(symbols, ())) if own else ():
            if theirs := next((each for each in own if is_same(function, each)), None):
                place, todo = f"{theirs.file}:{theirs.line}", "write the same types"
                what = f"{place}: formulas call {function}, which is not `{theirs}`"
                if theirs.is_template:
                    what = f"{place}: formulas call {function}, and the file does not instantiate this template for it"
                    todo = f"write `template Tensor {theirs.name}(...);` with these types, as PyTorch's file does"
                raise BuildError(what, todo=todo)

    def _named(self, symbols: Mapping[str, Iterable[Unit]]) -> dict[str, list[str]]:
        """Map the demangled name of each symbol to the user's files that its units compile."""
        names = run(["c++filt"], stdin="\n".join(symbols)).stdout.splitlines()
        return dict(zip(names, [list(map(self._user_file, units)) for units in symbols.values()], strict=True))

    @cached_property
    def _natives(self) -> NativeFolders:
        return saved_natives(self._note)

    def _user_file(self, unit: Unit) -> str:
        """Return the user's file that a unit compiles; the generated source if there is none."""
        is_own = unit.source.is_relative_to(SOURCES)
        return str(self._natives.file(unit.source.relative_to(SOURCES)) if is_own else unit.source)

    def _aliases(self, unresolved: Iterable[str]) -> dict[str, str]:
        """Map unresolved kernels for CPU capabilities that are not compiled to the kernel of the one that is. Their
        symbols are static members of ``at::native::DispatchStub``, such as ``AVX2``.
        """
        if not self._toolchain.is_for_edits:
            return {}
        (only,) = self._toolchain.capabilities
        suffixes = [f"{len(name)}{name}E" for name in self._toolchain.architecture.capabilities if name != only]
        return {
            name: f"{name.removesuffix(suffix)}{len(only)}{only}E"
            for suffix in suffixes
            for name in unresolved
            if name.startswith("_ZN2at6native12DispatchStubI") and name.endswith(suffix)
        }

    def _object_of(self, unit: Unit, guards: Iterable[Guard]) -> Path:
        return guarded_object(unit, guards, self._toolchain) if is_guarded(unit) else unit.target

    def _compiled_table(
        self, bound: Iterable[Bound], stubs: Mapping[str, StubBindings], guards: Sequence[Guard]
    ) -> Path:
        """Compile the table that binds hidden functions and replaces kernels. Return its object file."""
        defined = {name for _, file in self._objects for name in file.defined()}
        table = trampoline_table(
            bound,
            stubs,
            self._toolchain.architecture.jump,
            is_python_extension=self._product.is_python_extension,
            guards=guards,
            variants=variants_of(self._product.units, defined, self._toolchain),
        )
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
