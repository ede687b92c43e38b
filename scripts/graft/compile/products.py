"""The libraries of a delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.base import Base, Library
from .cuda import Nvcc
from .units import Unit, Units


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
