"""Kernels that a native folder registers for dispatch stubs of the base, found by their symbols.

``REGISTER_DISPATCH`` and its kin (ATen/native/DispatchStub.h) define a static member for each CPU capability, such as
``at::native::DispatchStub<..., at::native::add_stub_DECLARE_DISPATCH_type>::AVX2``. The base has members of the same
names, which its stub chooses among. They are variables, so ``templates/trampolines.cpp`` can write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..base.symbols import DATA, SymbolFile, SymbolIndex
from ..inputs.toolchain import Toolchain
from .units import Unit

# The start of a member's symbol, and the end of the name of a class in it.
_MEMBER, _CLASS = "_ZN2at6native12DispatchStubI", "_DECLARE_DISPATCH_type"


# The end of the symbol of a member that gets PyTorch's kernel (templates/ATen/native/DispatchStub.h).
_STOCK = re.compile(r"NS0_5StockI(.+)EE(E\d+[A-Z0-9]+E)$")


class Stub(NamedTuple):
    """A dispatch stub: its name, and its namespaces below ``at::native``, mangled."""

    scopes: str
    name: str

    @property
    def symbols(self) -> list[str]:
        """The symbols that it may have: in its namespaces, or in an anonymous one there."""
        scopes, name = f"_ZN2at6native{self.scopes}", f"{len(self.name)}{self.name}E"
        return [f"{scopes}{name}", f"{scopes}12_GLOBAL__N_1{name}"]


class ReplacedKernel(NamedTuple):
    """A kernel that replaces one of the base's: its symbol, and the addresses of the base's member and stub."""

    symbol: str
    member: int
    stub: int


def stub_of(member: str) -> Stub | None:
    """Return the stub whose kernel has the symbol ``member``; None for other symbols."""
    if not member.startswith(_MEMBER):
        return None
    for start in re.finditer(r"(?<=NS0_)(?=\d)", member):  # at::native::
        scopes, rest = "", member[start.start() :]
        while length := re.match(r"\d+", rest):
            end = length.end() + int(length[0])
            name = rest[length.end() : end]
            if name.endswith(_CLASS):
                return Stub(scopes, name.removesuffix(_CLASS))
            scopes, rest = f"{scopes}{rest[:end]}", rest[end:]
    return None


class SharedStub(NamedTuple):
    """A stub that a source defines again: its symbol, its address in the base, and its size in bytes."""

    symbol: str
    stock: int
    size: int


class StockKernel(NamedTuple):
    """A member that gets PyTorch's kernel: its symbol, and the address of PyTorch's member in the base."""

    symbol: str
    member: int


class StubBindings(NamedTuple):
    """The kernels and stubs of a product that belong to dispatch stubs of a library of the base."""

    kernels: list[ReplacedKernel]
    stubs: list[SharedStub]
    stock: list[StockKernel]


def bindings_of(
    library: SymbolIndex, names: Iterable[str], sizes: Mapping[str, int], toolchain: Toolchain
) -> StubBindings:
    """Return the kernels and stubs that both a library of the base and a product have.

    If the product has kernels for one CPU capability only, they replace those of all. A stub that the library does not
    define is left out, since the library does not call it.

    Args:
        library: the library of the base.
        names: the symbols that the product defines or uses.
        sizes: the sizes of the variables that it defines.
        toolchain: the compiler of the product.
    """
    kernels: list[ReplacedKernel] = []
    shared: set[SharedStub] = set()
    for name, stub in ((name, stub) for name in names if (stub := stub_of(name))):
        members = _of_each(toolchain.architecture.capabilities, name) if toolchain.is_for_edits else [name]
        for symbol, (address,) in library.find(stub.symbols, DATA).items():
            if name in sizes:
                kernels += [ReplacedKernel(name, each, address) for (each,) in library.find(members, DATA).values()]
            if symbol in sizes:
                shared.add(SharedStub(symbol, address, sizes[symbol]))
    stock = [
        StockKernel(name, address)
        for name in names
        if (member := stock_member(name))
        for (address,) in library.find([member], DATA).values()
    ]
    return StubBindings(sorted(kernels), sorted(shared), sorted(stock))


def stock_member(symbol: str) -> str:
    """Return the symbol of the PyTorch member whose kernel the member ``symbol`` gets; empty for other symbols."""
    found = _STOCK.search(symbol) if symbol.startswith(_MEMBER) else None
    return f"{symbol[: found.start()]}{found[1]}{found[2]}" if found else ""


def _of_each(capabilities: Iterable[str], member: str) -> list[str]:
    """Return the symbols of the kernels of the same stub for all CPU capabilities."""
    stem = re.sub(rf"\d+(?:{'|'.join(capabilities)})E$", "", member)
    return [f"{stem}{len(name)}{name}E" for name in capabilities]


def replaced_stubs(units: Iterable[Unit], work: Path, libraries: Iterable[Path]) -> list[str]:
    """Return the names of the stubs of the base's ``libraries`` that units compiled in ``work`` have kernels for."""
    own = {name for unit in units for name in SymbolFile(work / unit.target).defined(weak=False)}
    members = {member: stub.name for member in own if (stub := stub_of(member))}
    indexes = map(SymbolIndex, libraries) if members else ()
    return sorted({members[name] for index in indexes for name in index.find(members, DATA)})
