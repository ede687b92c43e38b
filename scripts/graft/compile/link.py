"""``python -m graft.compile.link PLAN``: link one library. ninja runs it for those that `Libraries` finds stale.

Functions that the base's libraries define but hide are bound: there is one jump for each, filled in when the library
loads.
"""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from string import Template

from ..base.base import Library
from ..base.symbols import DATA, EXPORTED, FUNCTION, SymbolFile, SymbolIndex
from ..core.errors import GraftError, LinkError
from ..core.files import write_if_changed
from ..core.layout import SOURCES
from ..core.process import UNTRANSLATED, run
from ..inputs.native import NativeFolders, saved_natives
from ..inputs.toolchain import FAST_LINKER, Toolchain
from .diagnostics import of_repeated, of_undefined
from .stubs import Replaced, replaced_in
from .units import LINKED, Product, Unit

_FLAGS = ("-shared", "-fopenmp", "-Wl,-z,now", "-Wl,--build-id=sha1", "-Wl,--gc-sections")

# Symbols that the linker or the generated table of trampolines defines.
_DEFINED_LATER = frozenset(
    {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "_DYNAMIC"}
    | {"graft_libraries", "graft_slots", "graft_slots_size", "graft_is_python_extension"}
)

# A library of the base and the addresses of its hidden functions that are bound.
Bound = tuple[SymbolIndex, dict[str, int]]


def main(plan: str) -> int:
    """Link the library that the file ``plan`` describes. The current folder is the work folder."""
    try:
        Linker(Path(plan).read_text(encoding="utf-8")).link()
    except GraftError as error:
        print(error)
        return 1
    return 0


class Linker:
    """Links one product. Paths of units are relative to the current folder.

    Args:
        plan: what ``Product.plan`` returns.
    """

    def __init__(self, plan: str) -> None:
        fields = json.loads(plan)
        product = fields["product"]
        for kind in ("units", "provided"):
            product[kind] = [Unit(Path(each["source"]), Path(each["target"])) for each in product[kind]]
        product.update(like=Library(**product["like"]), offered=[Path(path) for path in product["offered"]])
        self._product = Product(**product)
        self._libraries, self._note = Path(fields["libraries"]), Path(fields["natives"])
        self._toolchain = Toolchain(**fields["toolchain"])

    def link(self) -> Path:
        """Link the library. Return its path.

        Raises:
            LinkError: a symbol is undefined or defined twice.
        """
        target = LINKED / self._product.name
        unresolved = self.unresolved()
        replaced = self.replaced()
        offered = {path: SymbolFile(path).exported() & unresolved for path in self._product.offered if unresolved}
        called = [path for path, names in offered.items() if names]
        aliases = self._aliases(unresolved)
        table = self._compiled_table(self.bound(unresolved.difference(aliases, *offered.values())), replaced)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.partial")
        objects = [table, *(unit.target for unit in self._product.units), *called]
        defined = [f"-Wl,--defsym={name}={other}" for name, other in sorted(aliases.items())]
        # What the base has, too, would be that of the base for the loader. It is for this library alone.
        own = target.with_name(f"{target.name}.map")
        write_if_changed(own, "".join(["{\n  local:\n", *(f"    {name};\n" for name in self._in_both), "};\n"]))
        defined += [f"-Wl,--version-script={own}"] if self._in_both else []
        done = run([*self._command(partial, objects), *defined], env=UNTRANSLATED, check=False)
        if done.returncode != 0:
            raise LinkError(done.stdout)
        partial.replace(target)
        return target

    def _command(self, target: Path, objects: Iterable[Path]) -> list[str | Path]:
        libraries, product, like = self._libraries, self._product, self._product.like
        # Sanitizers and debuggers report function names and lines, so nothing is stripped for them.
        flags = [*_FLAGS, *(self._toolchain.sanitizers or self._toolchain.debugging or ["-s"])]
        if self._toolchain.is_for_edits and shutil.which(self._toolchain.program(FAST_LINKER)):
            flags.append("-fuse-ld=gold")
        command: list[str | Path] = [self._toolchain.compiler, *flags, "-o", target, *objects]
        command += [f"-Wl,-soname,{Path(product.name).name}"]
        command += [f"-Wl,-rpath,{like.rpath}", f"-Wl,{like.rpath_flag}"] if like.rpath else []
        loaded = [libraries / name for name in (*product.bound, *product.linked)]
        loaded += [LINKED / name for name in product.loaded]
        return [*command, "-Wl,--no-as-needed", *loaded, "-Wl,--as-needed", f"-Wl,-rpath-link,{libraries}"]

    @cached_property
    def _objects(self) -> list[tuple[Unit, SymbolFile]]:
        return [(unit, SymbolFile(unit.target)) for unit in self._product.units]

    @cached_property
    def _bound(self) -> list[SymbolIndex]:
        return [SymbolIndex(self._libraries / name) for name in self._product.bound]

    @cached_property
    def _in_both(self) -> list[str]:
        """The names that both the product and a library of the base define for others."""
        own = {name for _, file in self._objects for name in file.defined(weak=False, hidden=False)}
        return sorted(name for library in self._bound for name in library.find(own, EXPORTED))

    def replaced(self) -> dict[str, Replaced]:
        """Return what the product has of dispatch stubs of the base, by library."""
        sizes: dict[str, int] = {}
        names: set[str] = set()
        for _, file in self._objects:
            sizes |= file.sizes()
            names |= file.defined() | file.undefined()
        return {each.name: replaced_in(each, names, sizes, self._toolchain) for each in self._bound}

    def unresolved(self) -> set[str]:
        """Return the symbols that the product needs and that neither it nor a library loaded with it exports.

        Raises:
            LinkError: a symbol is defined twice.
        """
        owners: dict[str, list[Unit]] = {}
        for unit, file in self._objects:
            for name in file.defined(weak=False):
                owners.setdefault(name, []).append(unit)
        for unit, file in self._objects:
            for name in self._of_all_capabilities(unit, file):
                owners[name].append(unit)
        if repeated := {name: units for name, units in owners.items() if len(units) > 1}:
            raise LinkError(of_repeated(self._named(repeated), self._natives))
        needed = {name for _, file in self._objects for name in file.undefined()} - _DEFINED_LATER
        needed.difference_update(*(file.defined() for _, file in self._objects))
        needed.difference_update(*(SymbolFile(unit.target).defined(hidden=False) for unit in self._product.provided))
        for library in self._bound:
            needed -= library.find(needed, EXPORTED).keys()
        python = [_python_library()] if self._product.is_python_extension else []
        for path in [*self._toolchain.system_libraries, *python]:
            needed -= SymbolFile(path).exported()
        return needed - self._toolchain.linked_in

    def _of_all_capabilities(self, unit: Unit, file: SymbolFile) -> Iterator[str]:
        """Yield what other builds, which compile ``unit`` for each CPU capability, would define more than once."""
        capability = self._toolchain.capabilities[0]
        if self._toolchain.is_for_edits and unit.target.stem.endswith(f".cpp.{capability}"):
            # The names of members of DispatchStub, and of what is in the namespace of a capability, differ.
            yield from (name for name in file.defined(weak=False) if f"{len(capability)}{capability}" not in name)

    def bound(self, unresolved: Iterable[str]) -> list[Bound]:
        """Find ``unresolved`` symbols among the hidden functions of the base's libraries.

        Raises:
            LinkError: a symbol is undefined. The linker cannot detect this: the interpreter's symbols, too, are missing
                until it runs.
        """
        bound = bind_hidden(unresolved, self._bound)
        if missing := set(unresolved).difference(*(functions for _, functions in bound)):
            # Code accesses variables without a call.
            hides = [library.name for library in self._bound if library.find(missing, DATA)]
            cause = f"other libraries cannot use hidden variables of {' and '.join(hides)}" if hides else ""
            needs = [(unit, file.undefined()) for unit, file in self._objects]
            callers = {name: [unit for unit, names in needs if name in names] for name in sorted(missing)}
            raise LinkError(of_undefined(self._named(callers), self._natives), cause=cause)
        return bound

    def _named(self, symbols: Mapping[str, Iterable[Unit]]) -> dict[str, list[str]]:
        """Return the demangled names of symbols, each with its sources as the user knows them."""
        names = run(["c++filt"], stdin="\n".join(symbols)).stdout.splitlines()
        return dict(zip(names, [list(map(self._user_file, units)) for units in symbols.values()], strict=True))

    @cached_property
    def _natives(self) -> NativeFolders:
        return saved_natives(self._note)

    def _user_file(self, unit: Unit) -> str:
        """Return the user's file that a unit compiles; the unit's own if it is generated."""
        is_own = unit.source.is_relative_to(SOURCES)
        return str(self._natives.file(unit.source.relative_to(SOURCES)) if is_own else unit.source)

    def _aliases(self, unresolved: Iterable[str]) -> dict[str, str]:
        """Return the symbols of kernels for CPU capabilities that are not compiled, the static members ``AVX2`` etc. of
        ``at::native::DispatchStub``, each with the symbol to use instead.
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

    def _compiled_table(self, bound: Iterable[Bound], replaced: Mapping[str, Replaced]) -> Path:
        """Compile the table that binds hidden functions, and replaces kernels."""
        jump = self._toolchain.architecture.jump
        table = trampoline_table(bound, replaced, jump, is_python_extension=self._product.is_python_extension)
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


def bind_hidden(needed: Iterable[str], libraries: Iterable[SymbolIndex]) -> list[Bound]:
    """Find each of ``needed`` among the hidden functions of ``libraries``, in this order.

    Raises:
        LinkError: a name is ambiguous.
    """
    left, bound = set(needed), []
    for library in libraries:
        found = library.find(sorted(left), FUNCTION)
        for name, addresses in found.items():
            if len(addresses) > 1:
                raise LinkError(
                    f"{library.name} has {len(addresses)} hidden functions named {name}",
                    todo="do not call it; copy its code into the native folder",
                )
        left -= found.keys()
        bound.append((library, {name: address for name, (address,) in found.items()}))
    return bound


def trampoline_table(
    libraries: Iterable[Bound], replaced: Mapping[str, Replaced], jump: str, *, is_python_extension: bool
) -> str:
    """Return the C++ table of what ``templates/trampolines.cpp`` binds at load time: functions, with a ``jump`` to each
    (see ``Architecture``), and kernels.
    """
    trampolines: list[str] = []
    declared: list[str] = []
    tables, entries = [], []
    for number, (library, functions) in enumerate(libraries):
        slots = []
        for name, address in functions.items():
            index = len(trampolines)
            trampolines.append(
                f".globl {name}\n.hidden {name}\n.type {name}, %function\n.p2align 4\n"
                f"{name}:\n  {jump.format(slot=f'graft_slots+{8 * index}')}\n.size {name}, .-{name}"
            )
            slots.append(f"{index}, {address:#x}")
        kernels, stubs = replaced.get(library.name, Replaced([], []))
        symbols = dict.fromkeys([*(each.symbol for each in kernels), *(each.symbol for each in stubs)])
        own = {symbol: f"own_{number}_{place}" for place, symbol in enumerate(symbols)}
        declared += [f'GRAFT_HIDDEN void* {name} asm("{symbol}");' for symbol, name in own.items()]
        arrays = {
            "GraftSlot": slots,
            "GraftKernel": [f"{each.member:#x}, {each.stub:#x}, &{own[each.symbol]}, nullptr" for each in kernels],
            "GraftStub": [f"{each.stock:#x}, &{own[each.symbol]}, {each.size}" for each in stubs],
        }
        fields = [f'"{library.name}"', f'"{library.build_id}"']
        for kind, rows in arrays.items():
            if rows:
                tables.append(
                    f"{kind} {kind}_{number}[] = {{\n" + "".join(f"    {{{row}}},\n" for row in rows) + "};\n"
                )
            fields += [f"{kind}_{number}" if rows else "nullptr", str(len(rows))]
        entries.append(f"    {{{', '.join(fields)}}},")
    return _TABLE.substitute(
        slot_count=max(len(trampolines), 1),
        trampolines="\n".join(trampolines),
        declared="\n".join(declared),
        tables="\n".join(tables),
        libraries="\n".join(entries),
        is_python_extension=str(is_python_extension).lower(),
    )


_TABLE = Template("""\
// Generated by scripts/graft/compile/link.py.
#include "graft_libraries.h"

asm(R"(
.pushsection .text.graft_trampolines, "ax", %progbits
$trampolines
.popsection
)");

$declared

namespace {
$tables
} // namespace

const GraftLibrary graft_libraries[] = {
$libraries
    {nullptr, nullptr, nullptr, 0}};
alignas(GRAFT_PAGE) void* graft_slots[($slot_count * sizeof(void*) / GRAFT_PAGE + 1) * GRAFT_PAGE / sizeof(void*)] = {};
const size_t graft_slots_size = sizeof(graft_slots);
const bool graft_is_python_extension = $is_python_extension;
""")


def _python_library() -> Path:
    """Return the file that exports Python's C API: libpython if it exists, or else the interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = Path(folder or "") / (name or "")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return shared if is_shared and shared.is_file() else Path(sys.executable).resolve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
