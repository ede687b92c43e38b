"""Plan the libraries of a build: the objects in each, the libraries that it loads, and how it is linked."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.base import Base, Library
from ..core.files import write_if_changed
from ..inputs.libraries import NO_LIBRARIES, LinkedLibraries
from ..inputs.toolchain import Toolchain
from .nvcc import Nvcc
from .units import Unit, Units

# The fixed sources of each library, of the module torch._C, and of a thin wheel's module, which extends torch._C.
_COMMON = ("compatibility.cpp", "trampolines.cpp")
_MODULE = ("bindings.cpp", "units_of_bindings.cpp", "module.cpp")
_THIN_MODULE = ("bindings.cpp", "units_of_bindings.cpp", "thin_module.cpp")
# For graft.load: the fixed sources of the library that a process loads once, and of each library with operators.
_LOADS = ("compatibility.cpp", "loads.cpp", "bindings.cpp", "loaded_bindings.cpp")
_LOADED_MODULE = ("units_of_bindings.cpp", "python.cpp", "loaded_module.cpp")

_OF_TORCH, _CUDA = ("libtorch_cpu.so", "libc10.so"), "libtorch_cuda.so"

# Loaded by libtorch.so. It does not link to libtorch.so, since libraries that load each other have no initialization
# order. Its calls of libtorch.so are resolved in the running process.
OPERATORS_FOR_CUDA = "torch/lib/libtorch_operators_cuda.so"

# The folder of the linked libraries, in the work folder.
LINKED = Path("objects/linked")


@dataclass(frozen=True)
class Product:
    """A library to link.

    Args:
        name: its path in the wheel.
        units: the units in it.
        bound: libraries of the base whose functions it calls, exported or hidden.
        like: a library whose search path for other libraries it gets.
        linked: additional libraries of the base that it loads.
        loaded: libraries of other products that it loads.
        offered: libraries that it loads only if it uses them.
        provided: units of another product that it calls.
        is_python_extension: whether Python loads it.
        is_loaded: whether its initializers are left to the process that loads it.
        libraries: the libraries of settings that it is linked with.
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
    is_loaded: bool = False
    libraries: LinkedLibraries = NO_LIBRARIES

    @property
    def folder(self) -> str:
        """The folder of the library in the wheel. The copies of bundled libraries are there, too."""
        return str(Path(self.name).parent)

    @property
    def path(self) -> Path:
        """The path of the linked library from the work folder."""
        return LINKED / self.name

    @property
    def plan(self) -> Path:
        """The path of its link plan from the work folder."""
        return Path("plans", f"{Path(self.name).name}.plan")


def with_libraries(products: Sequence[Product], libraries: LinkedLibraries) -> list[Product]:
    """Return the products. Those that contain sources of the user are linked with ``libraries``."""
    own = {product.name for product in products if any(unit.is_own for unit in product.units)}
    return [replace(product, libraries=libraries) if product.name in own else product for product in products]


@dataclass(frozen=True)
class LinkPlan:
    """All that a link depends on, except for the contents of its input files.

    Args:
        product: the library.
        libraries: the folder of the base's libraries.
        toolchain: the compiler that links it.
        natives: the file from which messages take the paths of the user's files, ``Snapshot.note``.
    """

    product: Product
    libraries: Path
    toolchain: Toolchain
    natives: Path

    def write(self, path: Path) -> None:
        """Write the plan to a file, for the process that links the library."""
        write_if_changed(path, pickle.dumps(self))

    @staticmethod
    def read(path: Path) -> LinkPlan:
        """Read a plan that ``write`` wrote."""
        plan: LinkPlan = pickle.loads(path.read_bytes())
        return plan


def products(units: Units, base: Base, nvcc: Nvcc | None = None) -> list[Product]:
    """Return the libraries of a wheel, and of the tree of ``make develop``.

    In the official wheel ``libtorch.so`` is an empty library that everything loads. Here it contains the operators, so
    that every process has them and every C++ program linked to it can call them.
    """
    umbrella = base.library("lib/libtorch.so")
    cuda = _products_for_cuda(OPERATORS_FOR_CUDA, units, base, nvcc)
    library = Product(
        *("torch/lib/libtorch.so", [*units.named(_COMMON), *units.library], _OF_TORCH, umbrella),
        linked=[name for name in umbrella.needed if name not in _OF_TORCH and (base.libraries / name).is_file()],
        loaded=[each.name for each in cuda],
    )
    extension = Product(
        *(f"torch/{base.extension}", [*units.named(_COMMON + _MODULE), *units.bindings]),
        *(("libtorch_python.so", *_OF_TORCH), base.library(base.extension)),
        linked=["libtorch.so"],
        provided=units.library,
        is_python_extension=True,
    )
    return [*cuda, library, extension]


def thin_products(package: str, folder: str, units: Units, base: Base, nvcc: Nvcc | None = None) -> list[Product]:
    """Return the libraries of a thin wheel, in a folder of its package. C++ programs use all but the last."""
    beside = Library((), "$ORIGIN", "--enable-new-dtags")
    cuda = _products_for_cuda(f"{package}/{folder}/lib{package}_cuda.so", units, base, nvcc, beside)
    library = Product(
        *(f"{package}/{folder}/lib{package}.so", [*units.named(_COMMON), *units.library], _OF_TORCH, beside),
        loaded=[each.name for each in cuda],
    )
    extension = Product(
        *(f"{package}/{folder}/{base.extension}", [*units.named(_COMMON + _THIN_MODULE), *units.bindings]),
        *(("libtorch_python.so", *_OF_TORCH), beside),
        loaded=[library.name],
        provided=units.library,
        is_python_extension=True,
    )
    return [*cuda, library, extension]


# The library that the libraries with operators of `loaded_products` call. A process loads it once.
LOADS = "loaded/libgraft_loads.so"


def loaded_products(units: Units, base: Base, nvcc: Nvcc | None = None) -> list[Product]:
    """Return the libraries that a running process loads. The process has already loaded the base's libraries."""
    nowhere = Library((), "", "")
    loads = Product(LOADS, units.named(_LOADS), _OF_TORCH, nowhere, is_python_extension=True)
    cuda: dict[str, Any] = {}
    bound: list[str] = ["libtorch_python.so", *_OF_TORCH]
    if nvcc is not None and units.cuda:
        bound += [_CUDA, "libc10_cuda.so"]
        cuda = {"offered": nvcc.libraries(base.library(f"lib/{_CUDA}").needed)}
    own = [*units.named(_COMMON + _LOADED_MODULE), *units.cuda, *units.library, *units.bindings]
    library = Product(
        *("loaded/operators.so", own, bound, nowhere),
        loaded=[loads.name],
        provided=loads.units,
        is_python_extension=True,
        is_loaded=True,
        **cuda,
    )
    return [loads, library]


def _products_for_cuda(
    name: str, units: Units, base: Base, nvcc: Nvcc | None, like: Library | None = None
) -> list[Product]:
    """Return the library of the CUDA kernels, if there are any. It gets the search path of ``like``, or else that of
    the base's library of CUDA kernels.
    """
    if nvcc is None or not units.cuda:
        return []
    theirs = base.library(f"lib/{_CUDA}")
    bound, own = (_CUDA, "libc10_cuda.so", *_OF_TORCH), [*units.named(_COMMON), *units.cuda]
    return [Product(name, own, bound, like or theirs, offered=nvcc.libraries(theirs.needed), provided=units.library)]
