"""Find the pybind11 modules of an imported package, with their functions and classes. Uses only the standard library:
it runs with the Python of the environment that has the extension.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any

# Byte strings in libraries for CUDA or ROCm: sections of device code, and names of runtime libraries.
_DEVICE_CODE = (b".nv_fatbin\0", b".hip_fatbin\0", b"libcudart.so", b"libamdhip64.so")

# Prefixes of the types of ``__self__`` in functions of pybind11 2 and 3.
_OWNERS = ("PyCapsule", "pybind11")

# Byte strings in libraries that link torch's.
_TORCH = (b"libtorch", b"libc10")


@dataclass(frozen=True)
class FoundFunction:
    """A function.

    Args:
        module: its module.
        name: its name there.
        doc: the docstring that pybind11 wrote.
        for_cuda: the place of the function that is called for CUDA tensors; empty if this one is.
    """

    module: str
    name: str
    doc: str
    for_cuda: str = ""

    @property
    def place(self) -> str:
        """The place where Python finds it: ``module:name``."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class FoundModules:
    """The functions and classes of modules.

    Args:
        functions: the functions, in the order of their definitions.
        enums: the enumerations, as signatures name them: ``package._C.Mode``.
        classes: the other classes.
        cuda: whether a module has code for CUDA or ROCm devices.
    """

    functions: tuple[FoundFunction, ...] = ()
    enums: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    cuda: bool = field(default=False)


def modules_of(package: str, before: Iterable[str] = ()) -> list[str]:
    """Return the names of the pybind11 modules that are imported.

    Args:
        package: the package that was imported.
        before: the names in ``sys.modules`` before that: an extension may lie beside the package.
    """
    old = set(before)
    return sorted(
        name
        for name, module in sys.modules.items()
        if isinstance(module, ModuleType)
        and (_is_of(package, name) or (old and name not in old and "." not in name and _has(module, _TORCH)))
        and _extension(module)
        and any(True for _ in _functions(module))
    )


def not_imported(package: str) -> list[str]:
    """Return the extension modules in the package's folder that its import does not load. They may be for other
    machines, so the author must name those to import.
    """
    found = []
    loaded = _loaded()
    for folder in map(Path, getattr(sys.modules.get(package), "__path__", [])):
        for path in sorted(folder.rglob("*.so")):
            suffix = next((each for each in EXTENSION_SUFFIXES if path.name.endswith(each)), None)
            name = ".".join([package, *path.relative_to(folder).parent.parts, path.name.removesuffix(suffix or "")])
            if suffix and name not in sys.modules and str(path.resolve()) not in loaded and is_for_python(path):
                found.append(name)
    return found


def _loaded() -> set[str]:
    """Return the paths of the files that this process has mapped, such as its libraries."""
    opened = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {f"/{line.rstrip().partition('/')[2]}" for line in opened}


def is_for_python(library: Path) -> bool:
    """Return whether a library is a Python module; other libraries are for torch.ops.load_library."""
    stem = library.name.partition(".")[0]
    return f"PyInit_{stem}\0".encode() in library.read_bytes()


def found_in(modules: Iterable[str]) -> FoundModules:
    """Return the functions and classes of imported modules."""
    functions: list[FoundFunction] = []
    enums: list[str] = []
    classes: list[str] = []
    cuda = False
    for name in modules:
        module = sys.modules[name]
        functions += (FoundFunction(name, each, value.__doc__ or "") for each, value in _functions(module))
        for each, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == name:
                (enums if hasattr(value, "__members__") else classes).append(f"{name}.{each}")
        cuda = cuda or _has(module, _DEVICE_CODE)
    return FoundModules(tuple(functions), tuple(enums), tuple(classes), cuda)


def _functions(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the functions that pybind11 made, by name: each is bound to the record of its overloads."""
    for name, value in vars(module).items():
        if isinstance(value, BuiltinFunctionType) and type(value.__self__).__name__.startswith(_OWNERS):
            yield name, value


def _extension(module: ModuleType) -> bool:
    """Return whether a module is an extension, or a submodule that an extension created."""
    if isinstance(getattr(module, "__loader__", None), ExtensionFileLoader):
        return True
    parent = sys.modules.get(module.__name__.rpartition(".")[0])
    return parent is not None and getattr(module, "__spec__", None) is None and _extension(parent)


def _is_of(package: str, name: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _has(module: ModuleType, texts: Iterable[bytes]) -> bool:
    """Return whether a library of the module contains one of the texts."""
    contents = (path.read_bytes() for path in _libraries(module))
    return any(each in content for content in contents for each in texts)


def _libraries(module: ModuleType) -> list[Path]:
    """Return the module's file, and the library that this file opens if it is the stub of a thin wheel
    (``compile/extension_stub.py``): ``extensions/<build-id>/`` has it at the module's own place below site-packages.
    """
    path = Path(getattr(module, "__file__", None) or "")
    if not path.is_file():
        return []
    place = "/".join(path.parts[-module.__name__.count(".") - 1 :])
    ending = re.compile(rf"/extensions/[0-9a-f]+/{re.escape(place)}$")
    return [path, *(Path(each) for each in sorted(_loaded()) if ending.search(each))]
