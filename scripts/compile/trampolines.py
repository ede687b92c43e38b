"""Bind what the base's libraries define but hide: one jump per function, filled in when the library loads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ..base.elf import ElfFile, HiddenSymbol
from ..common.errors import LinkError

_TEMPLATE = Path(__file__).parent / "templates/trampolines.cpp"


@dataclass(frozen=True)
class BoundLibrary:
    """A library of the base and the hidden functions of it that are bound."""

    name: str
    build_id: str
    symbols: Sequence[HiddenSymbol]


def bind_hidden(needed: Iterable[str], libraries: Sequence[ElfFile]) -> list[BoundLibrary]:
    """Find each of ``needed`` among the hidden functions of ``libraries``, in their order.

    Data cannot be bound, since code reaches it without a call; it stays undefined, for the linker to report.

    Raises:
        LinkError: a library has no build-id, or a name stands for several functions.
    """
    left = set(needed)
    bound = []
    for library in libraries:
        if not library.build_id:
            raise LinkError(
                f"{library.path}: no build-id",
                cause="hidden functions are bound by address, which is safe only for a library that can be recognized",
                todo="use an official wheel",
            )
        functions = []
        for name, candidates in sorted(library.find_defined(left).items()):
            candidates = [candidate for candidate in candidates if candidate.is_function]
            if len(candidates) > 1:
                raise LinkError(
                    f"{library.path.name} has {len(candidates)} hidden functions named {name}",
                    todo="do not call it; copy what it does into the native folder",
                )
            functions += candidates
        left -= {function.name for function in functions}
        bound.append(BoundLibrary(library.path.name, library.build_id, functions))
    return bound


def trampoline_source(libraries: Sequence[BoundLibrary], *, version: str, is_python_extension: bool) -> str:
    """The C++ source that binds ``libraries`` at load time.

    A Python extension can raise ImportError. A library is loaded before anybody could catch an exception, so it ends
    the process, with the reason on stderr.
    """
    trampolines, tables, entries = [], [], []
    index = 0
    for number, library in enumerate(libraries):
        slots = []
        for symbol in library.symbols:
            trampolines.append(
                f".globl {symbol.name}\n.hidden {symbol.name}\n.type {symbol.name}, @function\n.p2align 4\n"
                f"{symbol.name}: endbr64\n  jmp *graft_slots+{8 * index}(%rip)\n.size {symbol.name}, .-{symbol.name}"
            )
            slots.append(f"    {{{index}, {symbol.value:#x}}}, // {symbol.name}")
            index += 1
        table = f"slots_{number}" if slots else "nullptr"
        if slots:
            tables.append(f"constexpr Slot {table}[] = {{\n" + "\n".join(slots) + "\n};\n")
        entries.append(f'    {{"{library.name}", "{library.build_id}", {table}, {len(slots)}}},')
    stop = (
        "return;" if is_python_extension else 'std::fprintf(stderr, "torch: %s.\\n", error().c_str());\n      _exit(1);'
    )
    return Template(_TEMPLATE.read_text()).substitute(
        slot_count=max(index, 1),
        trampolines="\n".join(trampolines),
        slot_tables="\n".join(tables),
        libraries="\n".join(entries),
        version=version,
        on_error=stop,
    )
