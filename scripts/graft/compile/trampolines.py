"""Bind hidden functions of the base's libraries: find their addresses, and write them into a table in C++.

``templates/trampolines.cpp`` reads the table when the library that contains it is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template

import numpy as np

from ..base.symbols import FUNCTION, SymbolIndex
from ..core.errors import BuildError
from .guards import Guard, Variant
from .stubs import StubBindings

_TABLE = Path(__file__).with_name("templates") / "table.cpp.in"

# The start of the symbols of PyTorch's kernels, as a folder names them and in PyTorch. A part of a symbol is a literal,
# the length of an identifier, a reference to an earlier part by its number, or one character.
_STOCK, _NATIVE = "_ZN2at6native5stock", "_ZN2at6native"
_PART = re.compile(r"L[a-z]n?\d+E|(?P<length>\d+)|S(?P<number>[0-9A-Z]+)_|.")

# A library of the base and the addresses of its hidden functions that are bound.
Bound = tuple[SymbolIndex, dict[str, int]]


def bind_hidden(needed: Iterable[str], libraries: Iterable[SymbolIndex]) -> list[Bound]:
    """Find the symbols ``needed`` among the hidden functions of ``libraries``, in this order.

    Raises:
        BuildError: a library has several functions of one name.
    """
    left, bound = {name: in_pytorch(name) for name in sorted(needed)}, []
    for library in libraries:
        found = library.find({*left.values()}, FUNCTION)
        for name, addresses in found.items():
            if len(addresses) > 1:
                raise BuildError(
                    f"{library.name} has {len(addresses)} hidden functions named {name}",
                    todo="do not call it; copy its code into the native folder",
                )
        functions = {name: found[theirs][0] for name, theirs in left.items() if theirs in found}
        left = {name: theirs for name, theirs in left.items() if name not in functions}
        bound.append((library, functions))
    return bound


def in_pytorch(symbol: str) -> str:
    """Return a symbol without the namespace ``stock``: that of ``at::native::foo`` for ``at::native::stock::foo``.

    ``S_``, ``S0_``, ``S1_`` and so on refer to the earlier parts of the symbol: ``at``, ``at::native``,
    ``at::native::stock``. PyTorch's symbol lacks the third part, so the later references are lower by one (Itanium C++
    ABI, "Compression").
    """
    if not symbol.startswith(_STOCK):
        return symbol
    found, place = [_NATIVE], len(_STOCK)
    while part := _PART.match(symbol, place):
        length, number, place = part["length"], part["number"], part.end()
        place += int(length or 0)
        text = symbol[part.start() : place]
        found.append(f"S{np.base_repr(int(number, 36) - 1, 36)}_" if number and number > "0" else text)
    return "".join(found)


def trampoline_table(
    libraries: Iterable[Bound],
    stubs: Mapping[str, StubBindings],
    jump: str,
    *,
    is_python_extension: bool,
    guards: Sequence[Guard] = (),
    variants: Sequence[Variant] = (),
) -> str:
    """Return the C++ table that ``templates/trampolines.cpp`` binds at load time: hidden functions, each with a
    ``jump`` to it (see ``Architecture``), kernels of dispatch stubs, and code that needs extra processor features.
    """
    trampolines: list[str] = []
    declared: list[str] = []
    tables, entries = [], []
    for number, (library, functions) in enumerate(libraries):
        first = len(trampolines)
        trampolines += [_trampoline(name, jump, index) for index, name in enumerate(functions, first)]
        kernels, shared, stock = stubs.get(library.name, StubBindings([], [], []))
        symbols = dict.fromkeys([*(each.symbol for each in kernels), *(each.symbol for each in shared)])
        own = {symbol: f"own_{number}_{place}" for place, symbol in enumerate(symbols)}
        declared += [f'GRAFT_HIDDEN void* {name} asm("{symbol}");' for symbol, name in own.items()]
        declared += [
            f'GRAFT_HIDDEN void* stock_{number}_{place} asm("{each.symbol}");' for place, each in enumerate(stock)
        ]
        declared += [f"void* stock_{number}_{place};" for place, _ in enumerate(stock)]
        arrays = {
            "GraftSlot": [f"{index}, {address:#x}" for index, address in enumerate(functions.values(), first)],
            "GraftKernel": [f"{each.member:#x}, {each.stub:#x}, &{own[each.symbol]}, nullptr" for each in kernels],
            "GraftStub": [f"{each.stock:#x}, &{own[each.symbol]}, {each.size}" for each in shared],
            "GraftStock": [f"{each.member:#x}, &stock_{number}_{place}" for place, each in enumerate(stock)],
        }
        fields = [f'"{library.name}"', f'"{library.build_id}"']
        for kind, rows in arrays.items():
            lines = "".join(f"    {{{row}}},\n" for row in rows)
            tables += [f"{kind} {kind}_{number}[] = {{\n{lines}}};\n"] if rows else []
            fields += [f"{kind}_{number}" if rows else "nullptr", str(len(rows))]
        entries.append(f"    {{{', '.join(fields)}}},")
    choices = []
    for each in guards:
        index = len(trampolines)
        trampolines.append(_trampoline(each.function, jump, index, is_exported=each.is_exported))
        declared.append(f'extern "C" void guarded_{index}() asm("{each.renamed}");')
        choices.append(_guard(each, index))
    for number, variant in enumerate(variants):
        names = {f"variant_{number}": variant.member, f"lower_{number}": variant.lower}
        declared += [f'extern "C" void* {name} asm("{symbol}");' for name, symbol in names.items()]
        choices.append(f"  if (!({_has(variant.features)})) {{\n    {' = '.join(names)};\n  }}\n")
    return Template(_TABLE.read_text(encoding="utf-8")).substitute(
        slot_count=max(len(trampolines), 1),
        trampolines="\n".join(trampolines),
        declared="\n".join(declared),
        tables="\n".join(tables),
        libraries="\n".join(entries),
        is_python_extension=str(is_python_extension).lower(),
        choices="".join(choices),
    )


def _guard(guard: Guard, slot: int) -> str:
    """Return C++ that sets the slot of a guarded function: to it if the processor can run it, else to an error."""
    lacks = f"which this processor lacks: {guard.source} was compiled for it (cpu-flags in pyproject.toml)"
    message = json.dumps(f"this needs {' and '.join(guard.features)}, {lacks}")
    throws = f"+[] {{ throw std::runtime_error({message}); }}"
    chosen = f"{_has(guard.features)} ? guarded_{slot} : {throws}"
    return f"  graft_slots[{slot}] = reinterpret_cast<void*>({chosen});\n"


def _has(features: Iterable[str]) -> str:
    return " && ".join(f'__builtin_cpu_supports("{each}")' for each in features)


def _trampoline(name: str, jump: str, slot: int, *, is_exported: bool = False) -> str:
    """Return the assembly of a function ``name`` that jumps to the address in a slot."""
    hidden = "" if is_exported else f".hidden {name}\n"
    return (
        f".globl {name}\n{hidden}.type {name}, %function\n.p2align 4\n"
        f"{name}:\n  {jump.format(slot=f'graft_slots+{8 * slot}')}\n.size {name}, .-{name}"
    )
