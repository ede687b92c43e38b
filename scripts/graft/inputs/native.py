"""Native folders, and the files in them that a build reads. They have the layout of ATen's, aten/src/ATen/native."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ..core import folders
from ..core.errors import UsageError
from ..cpp.includes import PLACE, included, texts_in
from ..cpp.tokens import without_comments
from .entries import RELEASES, Entry, Report, read_entries
from .settings import NO_SETTINGS, OF_TOOLS, Settings, is_for, settings_of
from .unread import sources_elsewhere

FUNCTIONS = Path(folders.FUNCTIONS)
DERIVATIVES = Path(folders.DERIVATIVES)
PYTHON = Path(folders.PYTHON)
DOCS = Path(folders.DOCS)
SAMPLES = Path("samples.py")
HELPERS = Path(folders.HELPERS)
HELPERS_HEADER = HELPERS.with_suffix(".h")
AUTOCAST = Path("autocast.yaml")
OVERLAY = Path(folders.OVERLAY)

# Where torch has its headers.
INCLUDE = "torch/include"

YAML = (FUNCTIONS, DERIVATIVES, AUTOCAST)
_SOURCE_SUFFIXES = (".cpp",)
HEADER_SUFFIXES = (".h", ".hpp", ".inl", ".inc")
CUDA_SUFFIXES = (".cu", ".cuh")
CPLUSPLUS = (*_SOURCE_SUFFIXES, *HEADER_SUFFIXES, *CUDA_SUFFIXES)
PYTHON_SUFFIXES = (".py", ".pyi")
DOCS_SUFFIX = ".rst"

# The subfolders that builds read. In others, they read only files that settings or includes name.
FOLDERS = (*folders.OF_SOURCES, "ufunc", DOCS.name, PYTHON.name)

# Names that ninja, compilers and wheels can all handle.
_NAME = re.compile(r"[\w.+-]{1,120}")
_NAMED_BADLY = "its name needs to be at most 120 letters, digits and . _ + -"

# Includes whose text does not give the header's path (macros, include_next), and the suffixes that it may have.
_COMPUTED = re.compile(r"^[ \t]*#[ \t]*include(?:_next\b|[ \t]+[A-Za-z_])", re.M)
_ANY_HEADERS = (*HEADER_SUFFIXES, ".cuh", ".def", ".h++", ".hh", ".hxx", ".ipp", ".tpp")

# The macros of ATen/native/DispatchStub.h, and the namespace of functions that are compiled for each CPU capability.
_REGISTERS = re.compile(r"\b(?:\w+_)?REGISTER_(?:\w+_)?DISPATCH\b")
_OF_CAPABILITY = re.compile(r"\bnamespace\s+CPU_CAPABILITY\b")


@dataclass(frozen=True, kw_only=True)
class NativeFiles:
    """Files of native folders, by their paths in the folders.

    Args:
        paths: the path of each file that a build reads: the user's file, or its copy in a snapshot.
        included: the files that are read only because others include them.
        named: the sources that settings name.
        searched: the folders of headers that settings name in the project, as relative paths. Others are searched
            later.
    """

    paths: Mapping[Path, Path]
    included: Collection[Path] = ()
    named: Collection[Path] = ()
    searched: Sequence[Path] = ()

    def text(self, name: Path) -> str:
        """Return the text of a file. Bytes that are not UTF-8 are replaced; checks report them."""
        return self.paths[name].read_text(encoding="utf-8", errors="replace")

    def text_if_there(self, name: Path) -> str | None:
        """Return the text of a file; None if there is no such file."""
        return self.text(name) if name in self.paths else None

    @cached_property
    def files(self) -> list[Path]:
        """The files that a build reads."""
        return sorted(self.paths)

    @cached_property
    def cplusplus(self) -> list[Path]:
        """The files that compilers read."""
        others = {*self.included, *self.named}
        return [name for name in self.files if name.suffix in CPLUSPLUS or name in others]

    @cached_property
    def cuda(self) -> list[Path]:
        """C++ below ``cuda/``, CUDA sources elsewhere, and sources that settings name in any folder ``cuda``."""
        code = (name for name in self.cplusplus if name not in self.included)
        return [name for name in code if name.suffix in CUDA_SUFFIXES or self._is_below_cuda(name)]

    def _is_below_cuda(self, name: Path) -> bool:
        return name.parts[0] == "cuda" or (name in self.named and "cuda" in name.parts[:-1])

    @cached_property
    def headers(self) -> list[Path]:
        """Headers that are not for CUDA, and other files that are only included."""
        code = {*self.cplusplus}.difference(self.cuda)
        return sorted(name for name in code if name.suffix in HEADER_SUFFIXES or name in self.included)

    @cached_property
    def installed(self) -> list[Path]:
        """Headers that are installed with the wheel, below ``ATen/native``."""
        others = {name for name in self.included if any(map(name.is_relative_to, self.searched))}
        return [name for name in self.headers if name not in {*others, *self.helper_headers}]

    @property
    def helpers(self) -> list[Path]:
        """The sources of functions for formulas, at most one for each folder."""
        return self._named(HELPERS)

    @property
    def helper_headers(self) -> list[Path]:
        """The headers with declarations of new functions for formulas."""
        return self._named(HELPERS_HEADER)

    def _named(self, file: Path) -> list[Path]:
        """Return the files in the top folder with this name, or with one that ``_apart`` gives, in its order."""
        name = re.compile(rf"{file.stem}(\.\d+)?{re.escape(file.suffix)}")
        return sorted(
            (each for each in self.files if name.fullmatch(str(each))), key=lambda each: (len(str(each)), each)
        )

    @cached_property
    def vectorized(self) -> list[Path]:
        """Files in ``cpu/`` with kernels for dispatch stubs, or with functions for each CPU capability that such
        kernels call: they are compiled once for each capability. Other functions would then be defined several times.
        """
        return [name for name in self._compiled if is_for_capabilities(name) and self._has_kernels_for_stubs(name)]

    @property
    def sources(self) -> list[Path]:
        """C++ files that are compiled once."""
        return sorted({*self._compiled}.difference(self.vectorized))

    @property
    def python(self) -> list[Path]:
        """Python files below ``python/``, which mirrors the ``torch`` package."""
        return [name for name in self._no_code if name.parts[0] == PYTHON.name]

    @property
    def docs(self) -> list[Path]:
        """Docstrings below ``docs/``, each named after its operator."""
        return [name for name in self._no_code if name.parts[0] == DOCS.name]

    @property
    def _no_code(self) -> list[Path]:
        return sorted({*self.files}.difference(self.cplusplus))

    @property
    def _compiled(self) -> list[Path]:
        return sorted({*self.cplusplus}.difference(self.cuda, self.headers))

    def _has_kernels_for_stubs(self, name: Path) -> bool:
        names = [name, *included(self.text_if_there, [name], self.searched)]
        code, *headers = (without_comments(self.text(each)) for each in names)
        return any(map(_REGISTERS.search, (code, *headers))) or bool(_OF_CAPABILITY.search(code))


@dataclass(frozen=True, kw_only=True)
class NativeFolder(NativeFiles):
    """A native folder.

    Args:
        path: the user's folder. Messages name its files by their paths below it.
        unread: the files that no build reads. ``make check`` looks for misspelt names among them.
        elsewhere: the paths of C++ sources in folders that no build reads. ``make check`` looks there for missing
            kernels.
        others: separate native folders below it, which are not a part of this one.
        settings: its settings.
        release: the release of PyTorch that it is built for; empty for all. Parts for other releases are left out.
        outside: the user's files that are not below it: they are below the folder of the settings, or the folder was
            written from them.
        overlay: files that replace torch's own, by their paths below site-packages. ``outside`` has the user's files
            for them, with ``overlay/`` before these paths.
        written_from: the folder of the files that a program wrote it from; None for folders that users write.
    """

    path: Path
    unread: tuple[Path, ...] = ()
    elsewhere: Mapping[Path, Path] = field(default_factory=dict)
    others: tuple[Path, ...] = ()
    settings: Settings = NO_SETTINGS
    release: str = ""
    outside: Mapping[Path, Path] = field(default_factory=dict)
    overlay: Mapping[str, Path] = field(default_factory=dict)
    written_from: Path | None = None

    def place(self, name: Path) -> Path:
        """Return the path of the user's file."""
        return self.outside.get(name, self.path / name)

    def shown(self, name: Path) -> str:
        """Return a path for messages: relative to the native folder; its name if a program wrote the folder."""
        return str(name) if self.written_from else os.path.relpath(self.place(name), self.path)

    @property
    def searched_elsewhere(self) -> list[Path]:
        """The folders of headers that settings name outside of the project."""
        return [each for each in self.settings.include_dirs if not self.settings.is_own(each, self.path)]

    @property
    def inputs(self) -> list[Path]:
        """The user's files that a build depends on."""
        laid_over = (OVERLAY / key for key in self.overlay)
        return [*map(self.place, [*self.files, *laid_over]), *self.settings.inputs]

    def for_release(self, release: str) -> NativeFolder:
        """Return this folder without the files for other releases of PyTorch."""
        paths = {name: path for name, path in self.paths.items() if is_for(self._releases_of(name), release)}
        return replace(self, release=release, paths=paths)

    @property
    def functions_left_out(self) -> set[str]:
        """The functions for formulas, and files, that settings limit to other releases."""
        return {part for part, releases in self.settings.releases.items() if not is_for(releases, self.release)}

    @property
    def is_own(self) -> bool:
        """Whether users wrote its sources: not `graft adopt`, and no checkout has them."""
        return not self.written_from and Path(folders.ADOPTED) not in self.unread

    def left_out(self, whole: NativeFolder) -> Iterator[str]:
        """Yield the names of the parts of ``whole`` that are left out here because they are for other releases."""
        for file in (FUNCTIONS, DERIVATIVES):
            kept = {each.operator for each in self.entries(file)}
            yield from (each.operator for each in whole.entries(file) if each.operator not in kept)
        yield from map(str, sorted(whole.paths.keys() - self.paths.keys()))
        for name in self.helpers:
            yield from sorted(self.functions_left_out & {*re.findall(r"\w+", whole.text(name))})

    def _releases_of(self, name: Path) -> str | None:
        """Return the releases that settings limit a file to; None if they do not."""
        places = (self.settings.root / part for part in self.settings.releases)
        named = dict(zip(places, self.settings.releases.values(), strict=True))
        return named.get(self.place(name))

    def entries(self, file: Path, report: Report = lambda *_: None, *, of_any: bool = False) -> list[Entry]:
        """Return the entries of a YAML file, if the folder has it; with ``of_any``, also those for other releases."""
        every = read_entries(self.place(file), report, self.paths[file]) if file in self.paths else []
        if of_any:
            return every
        # Only replacing entries may be limited to releases; the check refuses others.
        return [each for each in every if not each.is_replacing or is_for(each.fields.get(RELEASES), self.release)]


@dataclass(frozen=True, kw_only=True)
class NativeFolders(NativeFiles):
    """All native folders of a build as one. A name stands for the file of the first folder that has it.

    Args:
        folders: the folders, in the user's order.
        declared: a native_functions.yaml with the operators that code here calls, but that are defined elsewhere; None
            if there are none.
    """

    folders: tuple[NativeFolder, ...]
    declared: Path | None = None

    @property
    def title(self) -> str:
        """The user's folders, as shown in messages."""
        return " ".join(str(folder.path) for folder in self.folders)

    def file(self, name: Path) -> Path:
        """Return the user's file, for messages."""
        return self.owner(name).place(name)

    def owner(self, name: Path) -> NativeFolder:
        """Return the folder of a file; the first if none has it."""
        return next((each for each in self.folders if name in each.paths), self.folders[0])

    @cached_property
    def overlay(self) -> dict[str, tuple[Path, Path]]:
        """The files that replace torch's own, by their paths below site-packages: the user's file, and the one that a
        build reads.
        """
        every = reversed(self.folders)
        return {key: (each.place(OVERLAY / key), path) for each in every for key, path in each.overlay.items()}

    def found_at(self, name: Path) -> Path:
        """Return the user's file for a path in the folder that compilers search first."""
        if found := self.overlay.get(f"{INCLUDE}/{name.as_posix()}"):
            return found[0]
        return self.file(name.relative_to(PLACE) if name.is_relative_to(PLACE) else name)

    def copy_of(self, file: Path) -> Path:
        """Return the copy that a build reads instead of the user's ``file``; other paths unchanged."""
        copies = (copy for folder in self.folders for name, copy in folder.paths.items() if folder.place(name) == file)
        return next(copies, None) or next((copy for user, copy in self.overlay.values() if user == file), file)

    def texts(self, name: Path) -> dict[Path, str]:
        """Return the text of each folder's file of this name, by the user's file."""
        return {folder.place(name): folder.text(name) for folder in self.folders if name in folder.paths}

    def entries(self, file: Path, *, replacing: bool | None = None) -> list[Entry]:
        """Return the entries of a YAML file: all of them, those that replace PyTorch's own, or the others."""
        every = [entry for folder in self.folders for entry in folder.entries(file)]
        return every if replacing is None else [entry for entry in every if entry.is_replacing == replacing]


def load_native(path: Path) -> NativeFolder:
    """Read the folder ``path``.

    Raises:
        UsageError: the folder does not exist; or lists the files that cannot be read.
    """
    if not path.is_dir():
        what = "this is a file" if path.exists() else "no such folder"
        raise UsageError(f"{path}: {what}", todo=f"name a folder that contains {FUNCTIONS}")
    settings = settings_of(path)
    places = _Places(path, settings)
    there = _Listing(path, settings.excluded)
    named = {places.name(file): file for file in sorted(settings.sources.difference(map(path.joinpath, there.read)))}
    code = [*(file for file in there.read if file.suffix in CPLUSPLUS), *named]
    found = places.included(code)
    faults = there.faults + [(file, fault) for name, file in named.items() if (fault := _fault(file, name))]
    faults += places.ambiguous({*named, *found})
    if faults:
        lines = [f"{_printable(file)}: {fault}" for file, fault in dict(faults).items()]
        raise UsageError("\n".join(lines), todo="correct or move what is named")
    more = {name for name in found.difference(there.read, named) if not _fault(places.file(name), name)}
    every = {name: places.file(name) for name in (*there.read, *more)} | named
    origin = folders.origin_of(path)
    written = {Path(name): Path(origin.root, place) for name, place in origin.places.items()} if origin else {}
    laid_over = [name for name in written if name.is_relative_to(OVERLAY)]
    return NativeFolder(
        path=path,
        paths=every,
        included=frozenset(more),
        named=frozenset(named),
        searched=places.searched,
        unread=tuple(name for name in there.unread if name not in every and not _fault(path / name, name)),
        elsewhere={name: path / name for name in sources_elsewhere(path, FOLDERS) if name not in every},
        others=tuple(there.others),
        settings=settings,
        outside={name: file for name, file in every.items() if file != path / name} | written,
        overlay={name.relative_to(OVERLAY).as_posix(): path / name for name in laid_over},
        written_from=Path(origin.root) if origin else None,
    )


class _Listing:
    """The files of the native folder ``path`` as relative paths, without the sources ``excluded``: ``read`` by builds
    or ``unread``. Also the ``faults`` of files, and ``others``, the separate native folders.
    """

    def __init__(self, path: Path, excluded: Collection[Path]) -> None:
        self.read: list[Path] = []
        self.unread: list[Path] = []
        self.faults: list[tuple[Path, str]] = []
        self.others: list[Path] = []
        for file in sorted(_below(path, path, [path.resolve()], self.faults, self.others)):
            if path / file in excluded:
                continue
            if not _is_read(file):
                self.unread.append(file)
            elif fault := _fault(path / file, file):
                self.faults.append((path / file, fault))
            else:
                self.read.append(file)


class _Places:
    """Converts files to names in the build and back: paths below the folder ``path`` or that of its settings."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._roots = [path] if settings.file is None or settings.root == path else [path, settings.root]
        self._texts = [*map(texts_in, self._roots)]
        self._folders = [each for each in settings.include_dirs if settings.is_own(each, path)]
        self.searched = tuple(map(self.name, self._folders))
        for folder in self._folders:
            if not all(map(_NAME.fullmatch, self.name(folder).parts)):
                raise UsageError(settings.fault("include-dirs", f"{folder}: {_NAMED_BADLY}"), todo="rename it")

    def name(self, file: Path) -> Path:
        """Return the name of a file or folder."""
        return next(file.relative_to(root) for root in self._roots if file.is_relative_to(root))

    def file(self, name: Path) -> Path:
        """Return the file with a name."""
        return next(iter(self._files(name)), self._roots[0] / name)

    def included(self, code: Collection[Path]) -> set[Path]:
        """Return the files that sources include. If an include is computed, add all headers in settings' folders."""
        found = included(self._text, code, self.searched)
        if any(_COMPUTED.search(self._text(name) or "") for name in (*code, *found)):
            every = (path for folder in self._folders for path in folder.rglob("*") if path.suffix in _ANY_HEADERS)
            headers = {self.name(path) for path in every if path.is_file()}
            found |= headers | included(self._text, headers, self.searched)
        return found

    def ambiguous(self, names: Iterable[Path]) -> Iterator[tuple[Path, str]]:
        """Yield the files whose name in the build another file has, too, each with the error."""
        for name in sorted(names):
            if len(files := self._files(name)) > 1 and files[0].resolve() != files[1].resolve():
                yield files[1], f"{files[0]} has the same name in the build"

    def _files(self, name: Path) -> list[Path]:
        return [root / name for root in self._roots if (root / name).is_file()]

    def _text(self, name: Path) -> str | None:
        """Return the text of a file; None if there is no such file."""
        return next((text for texts in self._texts if (text := texts(name)) is not None), None)


def load_natives(paths: Iterable[Path]) -> NativeFolders:
    """Read the native folders ``paths``, which are built together."""
    return together(_apart(map(load_native, paths)))


def _apart(folders: Iterable[NativeFolder]) -> Iterator[NativeFolder]:
    """Yield native folders. From the second one with functions for formulas on, number the names of these files."""
    number = 0
    for folder in folders:
        theirs = {name: Path(f"{name.stem}.{number}{name.suffix}") for name in (HELPERS, HELPERS_HEADER)}
        has_some = bool(folder.paths.keys() & theirs)
        if number and has_some:
            outside = {new: folder.place(name) for name, new in theirs.items() if name in folder.paths}
            paths = {theirs.get(name, name): path for name, path in folder.paths.items()}
            folder = replace(folder, paths=paths, outside={**folder.outside, **outside})
        number += has_some
        yield folder


def together(folders: Iterable[NativeFolder]) -> NativeFolders:
    """Return native folders as one."""
    every = tuple(folders)
    first = {name: folder for folder in reversed(every) for name in folder.paths}
    return NativeFolders(
        paths={name: folder.paths[name] for name, folder in first.items()},
        included={name for name, folder in first.items() if name in folder.included},
        named={name for name, folder in first.items() if name in folder.named},
        searched=tuple(dict.fromkeys(name for folder in every for name in folder.searched)),
        folders=every,
    )


def saved_natives(path: str | Path) -> NativeFolders:
    """Load the native folders of a build from the file ``Snapshot.note``."""
    natives = pickle.loads(Path(path).read_bytes())
    assert isinstance(natives, NativeFolders)
    return natives


def require_native(paths: Sequence[Path], where: str = "") -> None:
    """Check that ``paths``, which are named in ``where`` or in NATIVE, are native folders.

    Raises:
        UsageError: names the first that is not.
    """
    for path in folders.not_native(paths):
        for other in sorted(each for each in path.glob("*.y*ml") if each.suffix in (".yml", ".yaml")):
            what = f"{where}{other}: a native folder's list of operators must be named {FUNCTIONS}"
            raise UsageError(what, todo=f"rename {other.name} if it is that list, or write {path / FUNCTIONS}")
        raise UsageError(
            f"{where}{path}: it contains no {FUNCTIONS}",
            cause="a native folder has the layout of aten/src/ATen/native",
            todo=f"write {path / FUNCTIONS}; README.md shows one",
        )


def _below(
    top: Path, folder: Path, parents: list[Path], faults: list[tuple[Path, str]], others: list[Path]
) -> Iterator[Path]:
    """Yield the files below ``folder`` of the native folder ``top``, as paths from ``top``. Follow links.

    ``parents`` are the resolved paths of the folders above its content. Links that cannot be followed are added to
    ``faults``, separate native folders to ``others``.
    """
    for path in folder.iterdir():
        file = path.relative_to(top)
        is_part = file.parts[0] in FOLDERS
        may_be_other = not path.is_symlink() and (folder != top or not is_part)
        if OF_TOOLS.fullmatch(path.name):
            continue
        if not path.is_dir() or _is_read(file):
            yield file
        elif may_be_other and folders.is_one_below(path, is_part=is_part):
            others.append(file)
        elif not is_part:
            continue
        elif (real := path.resolve()) in parents:
            faults.append((path, "this link leads to a folder that it is in"))
        elif not real.is_relative_to(parents[0]):
            faults.append((path, f"this link leads out of the native folder, to {real}"))
        else:
            yield from _below(top, path, [*parents, real], faults, others)


def _is_read(file: Path) -> bool:
    """Return whether a build would read a file of this name."""
    if file.parts[0] == PYTHON.name:
        return file.suffix in PYTHON_SUFFIXES
    if file.parts[0] == DOCS.name:
        return file.parent == DOCS and file.suffix == DOCS_SUFFIX
    return file in (*YAML, SAMPLES) or file.suffix in CPLUSPLUS


def _fault(path: Path, name: Path) -> str:
    """Return why a build cannot read the file ``path`` by this ``name``; empty if it can."""
    if not all(map(_NAME.fullmatch, name.parts)):
        return _NAMED_BADLY
    if not path.is_file():
        return "this link leads nowhere" if path.is_symlink() and not path.exists() else "not a file"
    return ""


def _printable(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")


def is_for_capabilities(file: Path) -> bool:
    """Return whether PyTorch's own build would compile a source for each CPU capability (its cmake/Codegen.cmake)."""
    return file.parent in (Path("cpu"), Path("quantized/cpu/kernels"))


def kernels_for_cuda(natives: NativeFolders) -> list[str]:
    """Describe the folders' CUDA code for messages: its files, or the number of entries with kernels."""
    # torchgen writes the kernels of inner loops, for CUDA too.
    named = sum(
        "ufunc_inner_loop" in entry.fields or any(key.endswith("CUDA") for key in entry.kernels)
        for entry in natives.entries(FUNCTIONS)
    )
    return [*map(str, natives.cuda)] or ([f"the CUDA kernels of {named} entries"] if named else [])
