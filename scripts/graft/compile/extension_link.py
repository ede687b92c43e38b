"""Link an extension that stays a separate library, as torch.utils.cpp_extension does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..base.symbols import EXPORTED, SymbolFile, SymbolIndex
from ..core.console import WARNING, say
from ..core.errors import BuildError
from ..core.process import UNTRANSLATED, run
from ..inputs.libraries import LinkedLibraries, is_elf
from ..inputs.toolchain import Toolchain
from .link import DEFINED_LATER, arguments_of, python_library

# PyTorch's libraries that extensions always load, and the one that only some use.
_LINKED, _OFFERED = ("libc10.so", "libtorch.so", "libtorch_cpu.so"), ("libtorch_python.so",)
_FOR_CUDA = ("libc10_cuda.so", "libtorch_cuda.so")

# How many undefined symbols a warning names.
_SHOWN = 3


@dataclass(frozen=True)
class Link:
    """The link of an extension.

    Args:
        target: the library.
        objects: its objects.
        toolchain: the compiler that links it.
        torch: the folder of PyTorch's libraries.
        cuda: the CUDA toolkit's libraries; empty if the extension has no CUDA kernels.
        flags: the linker flags of its settings.
        libraries: the libraries of its settings.
        rpath: where it searches for libraries.
    """

    target: Path
    objects: tuple[Path, ...]
    toolchain: Toolchain
    torch: Path
    cuda: tuple[Path, ...]
    flags: tuple[str, ...]
    libraries: LinkedLibraries
    rpath: str

    @property
    def of_torch(self) -> list[Path]:
        """PyTorch's libraries that it is linked with."""
        return [self.torch / name for name in (*_LINKED, *self._for_cuda, *_OFFERED)]

    @property
    def _for_cuda(self) -> tuple[str, ...]:
        return _FOR_CUDA if self.cuda else ()

    def link(self) -> None:
        """Link the extension, and warn about undefined symbols."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        partial = self.target.with_name(f"{self.target.name}.partial")
        done = run(self._command(partial), env=UNTRANSLATED, check=False)
        if done.returncode != 0:
            raise BuildError(f"{self.target.name}: {done.stdout.strip()}", todo="correct the sources or libraries")
        partial.replace(self.target)
        if missing := sorted(self._undefined()):
            names = run(["c++filt"], stdin="\n".join(missing[:_SHOWN])).stdout.splitlines()
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            say(f"{self.target.name}: nothing that it is linked with defines {', '.join(names)}{more}", WARNING)

    def _command(self, target: Path) -> list[str | Path]:
        command: list[str | Path] = [self.toolchain.compiler, "-shared", "-s", "-Wl,--build-id=sha1", "-o", target]
        command += [*self.objects, f"-Wl,-rpath,{self.rpath}"]
        command += ["-Wl,--enable-new-dtags", *self.flags, "-Wl,--no-as-needed"]
        command += [self.torch / name for name in (*_LINKED, *self._for_cuda)]
        command += ["-Wl,--as-needed", *(self.torch / name for name in _OFFERED), *self.cuda]
        return [*command, f"-Wl,-rpath-link,{self.torch}", *arguments_of(self.libraries, self.target.parent)]

    def _undefined(self) -> set[str]:
        """Return the symbols that no library of the process would define. The loader would report them only at the
        import, or at the first call.
        """
        every = [*map(SymbolFile, self.objects)]
        needed = {name for file in every for name in file.undefined()} - DEFINED_LATER
        needed.difference_update(*(file.defined() for file in every))
        for library in self.of_torch:
            needed -= SymbolIndex(library).find(needed, EXPORTED).keys()
        libraries = [*self.libraries.linked, *(each.path for each in self.libraries.bundled), *self.cuda]
        for path in (*self.toolchain.system_libraries, python_library(), *filter(is_elf, libraries)):
            needed -= SymbolFile(path).exported()
        needed.difference_update(*(self.toolchain.symbols_of(path) for path in self.libraries.archives))
        return needed - self.toolchain.linked_in
