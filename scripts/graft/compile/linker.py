"""Link a library from data, and find the symbols that nothing defines which it is linked with."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.symbols import EXPORTED, SymbolFile, SymbolIndex
from ..core.errors import BuildError
from ..core.process import UNTRANSLATED, run
from ..core.wording import quoted
from ..inputs.libraries import LinkedLibraries, is_elf
from ..inputs.toolchain import Toolchain

# Symbols that the linker or the generated table of trampolines defines.
_DEFINED_LATER = frozenset(
    {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "_DYNAMIC"}
    | {"graft_libraries", "graft_slots", "graft_slots_size", "graft_is_python_extension"}
    | {"graft_choose_for_processor"}
)


@dataclass(frozen=True)
class Link:
    """The link of a library.

    Args:
        target: the library.
        objects: its objects.
        toolchain: the compiler that links it.
        base: the folder of PyTorch's libraries.
        flags: the flags before its objects.
        options: the flags behind its objects, such as its search path for libraries.
        needed: the libraries that it always loads.
        libraries: the libraries of its settings.
        offered: the libraries that it loads only if it uses them.
        last: the flags behind its libraries.
    """

    target: Path
    objects: Sequence[Path]
    toolchain: Toolchain
    base: Path
    flags: Sequence[str]
    options: Sequence[str]
    needed: Sequence[Path]
    libraries: LinkedLibraries
    offered: Sequence[Path] = ()
    last: Sequence[str] = ()

    def link(self, finish: Callable[[Path], object] = lambda _: None) -> None:
        """Link the library; ``finish`` may change the file before it gets its name.

        Raises:
            BuildError: with the linker's output.
        """
        self.target.parent.mkdir(parents=True, exist_ok=True)
        partial = self.target.with_name(f"{self.target.name}.partial")
        done = run(self.command(partial), env=UNTRANSLATED, check=False)
        if done.returncode != 0:
            raise BuildError(quoted(done.stdout))
        finish(partial)
        partial.replace(self.target)

    def command(self, target: Path) -> list[str | Path]:
        """Return the command that links the library as ``target``."""
        command: list[str | Path] = [self.toolchain.compiler, "-shared", *self.flags, "-o", target, *self.objects]
        command += [*self.options, "-Wl,--no-as-needed", *self.needed, "-Wl,--as-needed", *self.offered]
        return [*command, f"-Wl,-rpath-link,{self.base}", *self._of_settings(), *self.last]

    def _of_settings(self) -> Iterator[str | Path]:
        """Yield the arguments for the libraries of settings. Bundled ones are linked as copies beside the target."""
        beside = self.target.parent
        copies = {each.path: beside / each.name for each in self.libraries.bundled}
        for path in self.libraries.linked:
            # For a library without a soname that is given by its path, the linker would record that path.
            is_elsewhere = path not in copies and is_elf(path)
            yield from [f"-L{path.parent}", f"-l:{path.name}"] if is_elsewhere else [copies.get(path, path)]
        # Do not export the symbols of static libraries.
        yield from (f"-Wl,--exclude-libs,{path.name}" for path in self.libraries.archives)
        if copies:
            yield f"-Wl,-rpath-link,{beside}"


def undefined(
    objects: Iterable[SymbolFile],
    toolchain: Toolchain,
    base: Iterable[SymbolIndex],
    libraries: LinkedLibraries,
    others: Iterable[Path],
) -> set[str]:
    """Return the symbols that ``objects`` use, but nothing in the process would define.

    Args:
        objects: all objects of a library.
        toolchain: the compiler that links it.
        base: PyTorch's libraries that it is linked with.
        libraries: the libraries of its settings.
        others: its other libraries.
    """
    every = list(objects)
    needed = {name for file in every for name in file.undefined()} - _DEFINED_LATER
    needed.difference_update(*(file.defined() for file in every))
    for index in base:
        needed -= index.find(needed, EXPORTED).keys()
    for path in {*libraries.linked, *(each.path for each in libraries.bundled), *toolchain.system_libraries, *others}:
        needed -= SymbolFile(path).exported() if is_elf(path) else frozenset()
    needed.difference_update(*(toolchain.symbols_of(path) for path in libraries.archives))
    return needed - toolchain.linked_in


def python_library() -> Path:
    """Return the file that exports Python's C API: libpython if it exists, or else the interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = Path(folder or "") / (name or "")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return shared if is_shared and shared.is_file() else Path(sys.executable).resolve()
