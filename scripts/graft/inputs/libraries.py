"""Find the libraries that settings of native folders name, and the libraries that these need. Libraries that not every
Linux has are bundled, as auditwheel does.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..core.elf import ElfFile
from ..core.errors import UsageError
from ..core.files import sha256_of_file
from .settings import Settings, files_of
from .toolchain import Toolchain

# Libraries of PyTorch, and of packages that it requires. A second copy would have variables of its own.
_OF_TORCH = (
    *("libtorch*.so", "libc10*.so", "libshm.so", "libgomp.so.*", "libcuda.so.*", "libcudart.so.*", "libcublas*.so.*"),
    *("libcudnn*.so.*", "libcufft*.so.*", "libcurand.so.*", "libcusolver*.so.*", "libcusparse*.so.*", "libnccl.so.*"),
    *("libnvrtc*.so.*", "libnvJitLink.so.*", "libnvToolsExt.so.*", "libcupti.so.*"),
)

_ELF, _ARCHIVE = b"\x7fELF", b"!<arch>"


@dataclass(frozen=True)
class Bundled:
    """A library that is bundled with the delivery.

    Args:
        path: the user's file.
        soname: the name by which other libraries need it.
        name: its new name, which no other library in a process has.
    """

    path: Path
    soname: str
    name: str


@dataclass(frozen=True)
class LinkedLibraries:
    """The libraries of a build.

    Args:
        linked: the files that are linked.
        bundled: the libraries that are bundled, with all that they need.
        digest: a hash of the contents of all of them; empty if there are none.
    """

    linked: tuple[Path, ...] = ()
    bundled: tuple[Bundled, ...] = ()
    digest: str = ""

    @property
    def archives(self) -> list[Path]:
        """Static libraries."""
        return [path for path in self.linked if _magic(path).startswith(_ARCHIVE)]


NO_LIBRARIES = LinkedLibraries()


def linked_libraries(every: Iterable[Settings], toolchain: Toolchain) -> LinkedLibraries:
    """Return the libraries that settings name.

    Raises:
        UsageError: lists libraries that are not found, or are for another processor.
    """
    linked: list[Path] = []
    bundled: dict[str, Path] = {}
    faults: list[str] = []
    for settings in every:
        finder = _Finder(settings, toolchain)
        linked += finder.linked()
        bundled |= finder.bundled
        faults += finder.faults
    if faults:
        raise UsageError("\n".join(faults), todo="correct libraries and library-dirs, or install what is missing")
    contents = {path: sha256_of_file(path) for path in dict.fromkeys((*linked, *bundled.values()))}
    digest = hashlib.sha256("\0".join(sorted(contents.values())).encode()).hexdigest() if contents else ""
    own = tuple(Bundled(path, soname, _renamed(path, digest)) for soname, path in sorted(bundled.items()))
    return LinkedLibraries(tuple(dict.fromkeys(linked)), own, digest)


class _Finder:
    """Finds the libraries of one folder. ``linked`` fills ``bundled`` and ``faults``."""

    def __init__(self, settings: Settings, toolchain: Toolchain) -> None:
        self._settings = settings
        self._toolchain = toolchain
        self.bundled: dict[str, Path] = {}
        self.faults: list[str] = []

    def linked(self) -> Iterator[Path]:
        """Yield the files that the settings name."""
        for name in self._settings.libraries:
            path = self._found(files_of(name))
            if path is None:
                names = " or ".join(files_of(name))
                self._fault(name, f"no {names} in library-dirs, nor in the compiler's folders")
            elif not is_elf(path):
                yield path  # an archive, or a linker script of the system
            elif self._is_for_another(path):
                self._fault(name, f"{path} is for another processor")
            else:
                self._add(name, _soname(path), path)
                yield path

    def _add(self, name: str, soname: str, path: Path) -> None:
        """Bundle the library ``path`` and all that it needs. Errors name the library ``name`` of the settings."""
        if soname in self.bundled or self._is_elsewhere(soname):
            return
        self.bundled[soname] = path
        file = ElfFile(path).dynamic()
        own = [each for tag in ("DT_RPATH", "DT_RUNPATH") for text in file.get(tag, ()) for each in text.split(":")]
        near = [Path(re.sub(r"\$(ORIGIN\b|\{ORIGIN\})", str(path.parent), each)) for each in own if each]
        for needed in file.get("DT_NEEDED", ()):
            if self._is_elsewhere(needed):
                continue
            if found := self._found([needed], [*near, path.parent]):
                self._add(name, needed, found)
            else:
                what = f"{path} needs {needed}, which is not found; name its folder in library-dirs, or exclude it"
                self._fault(name, what)

    def _found(self, names: Sequence[str], near: Iterable[Path] = ()) -> Path | None:
        """Return the first file with one of ``names`` in ``near``, in library-dirs, or in the compiler's folders."""
        there = [folder / name for folder in (*near, *self._settings.library_dirs) for name in names]
        return next((path.resolve() for path in (*there, *self._toolchain.libraries(names)) if path.is_file()), None)

    def _is_elsewhere(self, soname: str) -> bool:
        """Return whether a library is on every Linux, comes with PyTorch, or is excluded by settings."""
        kept_out = (*_OF_TORCH, self._toolchain.architecture.loader, *self._settings.kept_out)
        return soname in _everywhere(self._toolchain.machine) or any(fnmatch(soname, each) for each in kept_out)

    def _is_for_another(self, path: Path) -> bool:
        return ElfFile(path).machine != self._toolchain.architecture.elf

    def _fault(self, name: str, what: str) -> None:
        self.faults.append(self._settings.fault("libraries", what, name))


@functools.cache
def manylinux_policies(machine: str) -> Any:
    """Return auditwheel's policies of platform tags (PEP 600)."""
    # Imported late, as it takes long: only wheels and libraries need them.
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.policy import WheelPolicies

    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture[machine])


@functools.cache
def _everywhere(machine: str) -> frozenset[str]:
    """Return the libraries that every Linux has, according to the policies."""
    return frozenset().union(*(policy.whitelist for policy in manylinux_policies(machine)))


def is_elf(path: Path) -> bool:
    """Return whether a file is in ELF format. Some libraries are linker scripts, for example libm.so."""
    return _magic(path).startswith(_ELF)


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def _soname(path: Path) -> str:
    return next(iter(ElfFile(path).dynamic().get("DT_SONAME", ())), path.name)


def _renamed(path: Path, digest: str) -> str:
    """Return ``libfoo-1a2b3c4d.so.1`` for ``libfoo.so.1``."""
    stem, dot, rest = path.name.partition(".so")
    return f"{stem}-{digest[:8]}{dot}{rest}"
