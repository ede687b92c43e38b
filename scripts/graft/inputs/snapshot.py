"""The inputs of a build, read once at its start. Their hash is the stamp of the build."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from ..core.errors import GraftError
from ..core.files import files_below, lay_out_files, sha256_of_file
from ..core.layout import PACKAGE, Layout
from .elsewhere import sources_elsewhere
from .merge import merge_folders, merge_texts
from .native import SAMPLES, YAML, NativeFolder, load_native, load_natives
from .patches import pin_files
from .pin import Pin, pin_of, unpinned_sha256
from .toolchain import Toolchain, find_toolchain

# Libraries that affect a wheel's bytes: auditwheel's policies determine the platform tag.
_LIBRARIES = ("auditwheel", "pyelftools", "pyyaml", "packaging")

# The kinds of the builder's own files. Editors and version control write others beside them.
_OWN = (".cmake", ".py", ".cpp", ".h", ".hpp", ".in", ".ini", ".yaml")


@dataclass(frozen=True)
class Snapshot:
    """The inputs at the start of the build. All later stages read them here.

    Args:
        folder: the folder that ``lay_out`` writes them to.
        files: their contents, by path below ``folder``: ``native/0/Gdh.cpp``, ``patches/2.13.0/pin.yaml``.
        unread: files of the native folders that no build reads. Their names are checked, but do not affect the stamp.
        origins: the user's folder for each folder below ``native/``.
        pin: the parsed pin file.
        toolchain: the compiler.
        settings: other values that affect the result.
        elsewhere: contents of C++ sources that no build reads. They may have what the others lack.
    """

    folder: Path
    files: Mapping[str, bytes]
    unread: tuple[str, ...]
    origins: tuple[Path, ...]
    pin: Pin
    toolchain: Toolchain
    settings: tuple[str, ...]
    elsewhere: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def stamp(self) -> str:
        """A hash of all inputs, independent of paths. The same hash means the same wheel."""
        built = [name for name in self.files if Path(*Path(name).parts[2:]) != SAMPLES]  # those are only checked
        return self._hash(built, self.toolchain.description, self.toolchain.kind, *self.settings)

    @cached_property
    def stamp_of_generated(self) -> str:
        """A hash of torchgen's input and of the code that runs it."""
        return self._hash(name for name in self.files if Path(name).name in map(str, (*YAML, "pin.yaml")))

    def _hash(self, names: Iterable[str], *others: str) -> str:
        digest = hashlib.sha256()
        for name in sorted(names):
            digest.update(f"{name}\0{len(self.files[name])}\0".encode())
            digest.update(self.files[name])
        for text in (hash_of_builder(), *others):
            digest.update(f"{text}\0".encode())
        return digest.hexdigest()

    @property
    def patches(self) -> Path:
        """The pin file, the series and the patches."""
        return self.folder / "patches" / self.pin.path.parent.name

    @property
    def natives(self) -> list[Path]:
        """The copies of the native folders, in the user's order."""
        return [self.folder / f"native/{number}" for number in range(len(self.origins))]

    @property
    def merged(self) -> Path:
        """The native folder of the build: the only one, or all of them merged."""
        return self.natives[0] if len(self.origins) == 1 else self.folder / "native/merged"

    def lay_out(self) -> NativeFolder:
        """Write the inputs below ``folder``. Unchanged files keep their modification times. Return the merged native
        folder.
        """
        files = {**self.elsewhere, **dict.fromkeys(self.unread, b""), **self.files}
        if len(self.origins) > 1:
            files |= {f"native/merged/{name}": text for name, text in merge_folders(self._contents(self.files)).items()}
        lay_out_files(self.folder, files)
        return load_native(self.merged)

    def _contents(self, files: Mapping[str, bytes]) -> list[dict[Path, bytes]]:
        """Return the files of each native folder, by relative path."""
        found: list[dict[Path, bytes]] = [{} for _ in self.origins]
        for name, content in files.items():
            kind, number, *rest = Path(name).parts
            if kind == "native":
                found[int(number)][Path(*rest)] = content
        return found

    def hashes(self) -> dict[str, dict[str, str]]:
        """Return the hash of each file of the native folders, by folder."""
        unread = self._contents(dict.fromkeys(self.unread, b""))
        return {
            str(origin): {
                **{str(name): hashlib.sha256(content).hexdigest() for name, content in files.items()},
                **{str(name): sha256_of_file(origin / name) for name in more},
            }
            for origin, files, more in zip(self.origins, self._contents(self.files), unread, strict=True)
        }

    def translate(self, text: str) -> str:
        """Return ``text`` with paths in the snapshot replaced by those of the user's files."""
        pins = (self.patches.parent, self.pin.path.parent.parent)
        for copy, origin in (*zip(self.natives, self.origins, strict=True), pins):
            text = re.sub(rf"{re.escape(str(copy))}(?!\w)", str(origin).replace("\\", r"\\"), text)
        if len(self.origins) > 1:
            place = re.compile(rf"{re.escape(str(self.merged))}/([\w./+-]+?)(?::(\d+))?(?=[:\s,`'\")]|$)", re.M)
            text = place.sub(lambda match: self.place(Path(match[1]), int(match[2] or 0)), text)
        return text

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Make errors raised in the body name the user's files."""
        try:
            yield
        except GraftError as error:
            error.what, error.cause, error.todo = map(self.translate, (error.what, error.cause, error.todo))
            raise

    def place(self, name: Path, line: int) -> str:
        """Return the user's file and line for a line of a file in the merged folder."""
        folders = self._contents(self.files)
        if not any(name in folder for folder in folders):
            return f"{name}:{line}" if line else str(name)
        source, number = merge_texts(name, folders, self.origins).place(line)
        return f"{source}:{number}" if line else str(source)


def take_snapshot(layout: Layout) -> Snapshot:
    """Read all inputs of a build.

    Raises:
        GraftError: a folder, the pin, a patch or the compiler is missing or invalid.
    """
    files: dict[str, bytes] = {}
    unread: list[str] = []
    elsewhere: dict[str, bytes] = {}
    for number, native in enumerate(load_natives(layout.natives)):
        origin = native.path
        files |= {f"native/{number}/{name.as_posix()}": (origin / name).read_bytes() for name in native.files}
        unread += [f"native/{number}/{name.as_posix()}" for name in native.unread]
        others = {f"native/{number}/{name.as_posix()}": origin / name for name in sources_elsewhere(origin)}
        elsewhere |= {name: path.read_bytes() for name, path in others.items() if name not in files}
    pin = pin_of(layout)
    for path in pin_files(layout.patches):
        files[f"patches/{path.relative_to(layout.patches.parent).as_posix()}"] = path.read_bytes()
    toolchain = find_toolchain(pin, layout.cxx).of_kind(layout.kind)
    sha256 = "" if layout.installed else unpinned_sha256(pin, layout.base)
    unpinned = [sha256] if sha256 else []
    versions = (platform.python_version(), *(f"{name} {version(name)}" for name in _LIBRARIES))
    return Snapshot(
        folder=layout.snapshot,
        files=files,
        unread=tuple(unread),
        origins=layout.natives,
        pin=pin,
        toolchain=toolchain,
        settings=(layout.pin, layout.installed, *unpinned, platform.python_implementation(), *versions),
        elsewhere=elsewhere,
    )


@functools.cache
def hash_of_builder() -> str:
    """Return a hash of the builder's own files; pins are inputs of their own."""
    digest = hashlib.sha256()
    for name in files_below(PACKAGE):
        if name.suffix in _OWN and not name.name.startswith(".") and name.parts[0] != "patches":
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update((PACKAGE / name).read_bytes())
    return digest.hexdigest()
