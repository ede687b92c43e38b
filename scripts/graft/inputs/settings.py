"""Settings of a native folder: the table ``[tool.graft]`` of the nearest pyproject.toml at or above the folder whose
``native`` names it. Paths in it are relative to that file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..core.errors import UsageError
from ..core.extra_flags import NO_EXTRA, ExtraFlags, extra_flags
from ..core.keys import COMPILED, FILE
from .pyproject import faults_of, line_of, listed, name_of_table, natives_of, read_toml, table_in

# Keys that are not for compilers: their effects are in other inputs of a build.
_OF_NO_COMPILER = ("native", "torch", "keep", "releases")

_MACRO = re.compile(r"[A-Za-z_]\w*(\([^()]*\))?(=[^\n]*)?")
_LIBRARY = re.compile(r":?\w[\w.+-]*")
_NO_LIBRARY = "is no name: write foo for libfoo.so, :libfoo.so.1 for a file"
_PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SUFFIX = re.compile(r"(\.[\w-]+)*\.so")
_FEATURE = re.compile(r"-m(?!no-)[a-z][\w.-]*")
_HEADERS = re.compile(r"-(?:(?P<file>-?include\b(?!-)|imacros)|I|isystem|-include-path|-system-include)")

# The suffixes of sources of extensions, which may also be in C.
OF_EXTENSIONS = (*COMPILED, ".c")
# Flags for a compiler's actions, files and parts, which only the build passes.
_OF_BUILD = re.compile(r"@.*|-[cES]|-o.*|-x.*|-M[A-Z]*|-fsyntax-only|-save-temps.*|-specs=.*|-fplugin.*|-wrapper.*")
# Packages that no extension or package beside torch can be in.
_OF_TORCH = ("torch", "torchgen", "functorch", "graft")

# Files of editors, version control and package managers. compose/appended/_graft.py has the same pattern.
OF_TOOLS = re.compile(
    r"\..*|#.*#|.*~|.*\.(orig|rej|bak|swp)|__pycache__|.*\.(egg|dist)-info|compile_commands\.json", re.S
)


@dataclass(frozen=True)
class Settings:
    """The settings of a native folder. ``settings_of`` reads them.

    Args:
        file: the pyproject.toml; None if there are no settings.
        given: the keys that a build depends on, with their values as written.
        sources: the files that ``sources`` matches and ``exclude`` does not.
        excluded: the sources that are not compiled.
        include_dirs: folders of headers.
        flags: flags of compilers.
        cpu_flags: additional flags of sources, by file.
        libraries: the names of libraries to link.
        library_dirs: the folders in which libraries are searched.
        kept_out: patterns of the names of libraries that are not bundled.
        licenses: the files with licenses.
        table: the number of the table, if these are settings of an extension.
        extensions: the extensions that stay separate libraries.
        packages: the folders, or the module, of each Python package that is delivered beside torch.
        kept: PyTorch's functions for formulas that still call PyTorch's own functions where the folder replaces them.
        releases: the releases that a file, by its path from ``root``, or a function for formulas is limited to.
    """

    file: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    sources: frozenset[Path] = frozenset()
    excluded: frozenset[Path] = frozenset()
    include_dirs: tuple[Path, ...] = ()
    flags: ExtraFlags = NO_EXTRA
    cpu_flags: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    library_dirs: tuple[Path, ...] = ()
    kept_out: tuple[str, ...] = ()
    licenses: tuple[Path, ...] = ()
    table: int | None = None
    extensions: tuple[Extension, ...] = ()
    packages: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    releases: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The folder that paths are relative to."""
        assert self.file is not None
        return self.file.parent

    @property
    def stamp(self) -> tuple[str, ...]:
        """The settings as text, for the stamp of a build. With -march=native, it includes the processor."""
        return (json.dumps(self.given, sort_keys=True), *self.flags.settings) if self.given else ()

    @property
    def inputs(self) -> list[Path]:
        """The files that a build depends on: pyproject.toml, licenses, libraries, and the sources of extensions."""
        libraries = (
            folder / name for folder in self.library_dirs for each in self.libraries for name in files_of(each)
        )
        files = [self.file] if self.file and self.table is None else []
        of_extensions = (path for each in self.extensions for path in (*each.sources, *each.settings.inputs))
        return [*files, *self.licenses, *(path for path in libraries if path.is_file()), *of_extensions]

    def is_own(self, path: Path, native: Path) -> bool:
        """Return whether a path is below the native folder, or the folder of these settings."""
        return path.is_relative_to(native) or path.is_relative_to(self.root)

    def fault(self, key: str, what: str, value: str = "") -> str:
        """Return a message about a key, with the line of the key or of its ``value``."""
        assert self.file is not None
        line = line_of(self._text, key, value, table=self.table)
        return f"{self.file}:{line}: {name_of_table(self.table)} {key}: {what}"

    @cached_property
    def _text(self) -> str:
        return self.file.read_text(encoding="utf-8", errors="replace") if self.file else ""

    def require_none(self) -> None:
        """Check that there are no settings, since PyTorch's own build does not read them."""
        faults = [self.fault(key, "PyTorch's own build has no such settings") for key in self.given]
        if self.kept:
            faults.append(self.fault("keep", "a source tree has one function of each name, and all call that"))
        if faults:
            todo = "build onto a wheel, or write the folder as ATen is written"
            raise UsageError("\n".join(faults), todo=todo)


@dataclass(frozen=True)
class Extension:
    """An extension that stays a separate library, compiled and linked as by its own build.

    Args:
        name: the name by which Python imports it.
        suffix: the end of its file's name; empty for the target Python's.
        sources: its sources, in the order of the link.
        link_flags: flags of its link.
        settings: its other settings.
    """

    name: str
    suffix: str
    sources: tuple[Path, ...]
    link_flags: tuple[str, ...]
    settings: Settings

    def place(self, suffix: str) -> str:
        """Return the path of its library below site-packages. ``suffix`` is Python's, used if it has no own."""
        return f"{self.name.replace('.', '/')}{self.suffix or suffix}"


NO_SETTINGS = Settings()


def settings_of(native: Path) -> Settings:
    """Return the settings of a native folder.

    Raises:
        UsageError: lists all errors in them, each with its line.
    """
    for file in files_above(native):
        if b"graft" in file.read_bytes():
            table = table_in(read_toml(file))
            natives = natives_of(file.parent, table) if table else []
            if native in natives:
                return _read(file, table, native, natives)
    return NO_SETTINGS


def files_above(native: Path) -> list[Path]:
    """Return the pyproject.toml files at and above a native folder, the nearest first."""
    return [file for folder in (native, *native.parents) if (file := folder / FILE).is_file()]


def files_of(library: str) -> list[str]:
    """Return the possible file names of a library in the settings, as for the linker's flag -l."""
    return [library[1:]] if library.startswith(":") else [f"lib{library}.so", f"lib{library}.a"]


def _read(file: Path, table: Mapping[str, Any], native: Path, natives: Sequence[Path]) -> Settings:
    faults = faults_of(file, table)
    if not faults:
        reader = _Reader(Settings(file), table)
        settings, faults = reader.settings(native, natives), reader.faults
    if faults:
        raise UsageError("\n".join(faults), todo=f"correct {file}; scripts/guides/settings.md lists them")
    return settings


class _Reader:
    """Reads the values of a table, whose types were checked before. ``faults`` lists errors in the values."""

    # Whether paths may lead out of the folder of pyproject.toml.
    _may_lead_out = False

    def __init__(self, empty: Settings, table: Mapping[str, Any]) -> None:
        self._empty = empty
        self._root = empty.root
        self._table = table
        self.faults: list[str] = []

    def settings(self, native: Path, natives: Sequence[Path]) -> Settings:
        """Return the settings of one of the folders ``natives``. The first also has the sources that are below none."""
        excluded = frozenset(self._files("exclude", COMPILED))
        sources = frozenset(self._files("sources", COMPILED)) - excluded
        owners = {path: next(filter(path.is_relative_to, natives), natives[0]) for path in sources}
        return Settings(
            file=self._empty.file,
            given={key: value for key, value in self._table.items() if key not in _OF_NO_COMPILER},
            sources=frozenset(path for path, owner in owners.items() if owner == native),
            excluded=excluded,
            include_dirs=self._folders("include-dirs"),
            flags=ExtraFlags(
                (*self._macros, *self._flags("cxx-flags", self._listed("cxx-flags"))),
                (*self._macros, *self._flags("nvcc-flags", self._listed("nvcc-flags"), is_cuda=True)),
            ),
            cpu_flags=self._cpu_flags(),
            libraries=self._matching("libraries", _LIBRARY, _NO_LIBRARY),
            library_dirs=self._folders("library-dirs"),
            kept_out=tuple(self._listed("exclude-libraries")),
            licenses=self._files("license-files"),
            extensions=tuple(self._extensions()) if native == natives[0] else (),
            packages=self._packages() if native == natives[0] else {},
            kept=tuple(self._listed("keep")),
            releases=self._releases(),
        )

    def _extensions(self) -> Iterator[Extension]:
        every = self._table.get("extensions", ())
        for number, table in enumerate(every):
            reader = _ExtensionReader(replace(self._empty, table=number), table)
            yield reader.extension([each["name"] for each in every[:number]])
            self.faults += reader.faults

    def _packages(self) -> dict[str, tuple[Path, ...]]:
        found = {}
        for name, places in self._table.get("packages", {}).items():
            found[name] = tuple(Path(os.path.normpath(self._root / Path(each).expanduser())) for each in listed(places))
            if not _PACKAGE.fullmatch(name) or name.partition(".")[0] in _OF_TORCH:
                self._fault("packages", f"{name} is no name that a package beside torch can have", name)
            for each, path in zip(listed(places), found[name], strict=True):
                if not (path.is_dir() or (path.suffix == ".py" and path.is_file())):
                    self._fault("packages", f"{each}: no such folder", each)
        return found

    def _releases(self) -> dict[str, str]:
        found: dict[str, str] = self._table.get("releases", {})
        for part, releases in found.items():
            if not is_specifier(releases):
                self._fault("releases", f"{releases} is no range of versions: write <2.15 or >=2.12,<2.14", releases)
            if not (re.fullmatch(r"\w+", part) or (self._root / part).is_file()):
                self._fault("releases", f"{part} is no file, and no name of a function", part)
        return found

    def _listed(self, key: str) -> list[str]:
        return listed(self._table.get(key, ()))

    def _fault(self, key: str, what: str, value: str = "") -> None:
        self.faults.append(self._empty.fault(key, what, value))

    def _matching(self, key: str, pattern: re.Pattern[str], fault: str) -> tuple[str, ...]:
        for each in self._listed(key):
            if not pattern.fullmatch(each):
                self._fault(key, f"{each} {fault}", each)
        return tuple(self._listed(key))

    @cached_property
    def _macros(self) -> tuple[str, ...]:
        macros = self._matching("define", _MACRO, "is no macro: write NAME or NAME=VALUE")
        return tuple(flag for each in macros for flag in self._flags("define", [f"-D{each}"], each))

    def _folders(self, key: str) -> tuple[Path, ...]:
        found = {each: (self._root / Path(each).expanduser()).resolve() for each in self._listed(key)}
        for each, path in found.items():
            if not path.is_dir():
                self._fault(key, f"{each}: no such folder", each)
        return tuple(found.values())

    def _files(self, key: str, suffixes: Sequence[str] = ()) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(path for each in self._listed(key) for path in self._glob(key, each, suffixes)))

    def _glob(self, key: str, pattern: str, suffixes: Sequence[str] = ()) -> list[Path]:
        """Return the files that a pattern matches, only those with ``suffixes`` if given. No match is a fault."""
        parts = PurePath(pattern).parts
        if not self._may_lead_out and (PurePath(pattern).is_absolute() or ".." in parts):
            self._fault(key, f"{pattern} leads out of {self._root}", pattern)
            return []
        literal = next((number for number, part in enumerate(parts) if re.search(r"[*?[]", part)), len(parts))
        start, rest = Path(os.path.normpath(self._root.joinpath(*parts[:literal]))), parts[literal:]
        whole = str(PurePath(*rest, "*") if rest[-1:] == ("**",) else PurePath(*rest))
        every = sorted(start.glob(whole)) if rest else [start]
        every = [path for path in every if path.is_file() and not self._is_of_tools(path.relative_to(start), rest)]
        found = [path for path in every if not suffixes or path.suffix in suffixes]
        if not found:
            others = f" but {every[0].name}, which no compiler is called for" if every else ""
            self._fault(key, f"{pattern} matches no file{others}", pattern)
        return found

    def _is_of_tools(self, path: Path, written: Sequence[str]) -> bool:
        """Return whether ``path`` is a tool's file (``OF_TOOLS``) that the pattern ``written`` does not name."""
        return any(OF_TOOLS.fullmatch(part) and part not in written for part in path.parts)

    def _flags(self, key: str, words: Iterable[str], written: str = "", *, is_cuda: bool = False) -> tuple[str, ...]:
        """Validate and return compiler flags; ``written`` is the user's text, for errors."""
        words = list(words)
        for word in words:
            if what := _misplaced(word, is_macro=key == "define"):
                self._fault(key, f"{word}: {what}", word)
                return ()
        try:
            flags = extra_flags((), words) if is_cuda else extra_flags(words)
        except UsageError as error:
            what = "; ".join(filter(None, (error.what, error.cause, error.todo)))
            self._fault(key, what, written or flag_in(error.what))
            return ()
        return flags.cuda_cflags if is_cuda else flags.cflags

    def _cpu_flags(self) -> dict[Path, tuple[str, ...]]:
        found: dict[Path, tuple[str, ...]] = {}
        for pattern, words in self._table.get("cpu-flags", {}).items():
            flags = self._flags("cpu-flags", listed(words))
            for word in flags:
                if not _FEATURE.fullmatch(word):
                    self._fault("cpu-flags", f"{word} names no feature of a processor, as -mavx512bf16 does", word)
            for path in self._glob("cpu-flags", pattern, [suffix for suffix in COMPILED if suffix != ".cu"]):
                found[path] = (*found.get(path, ()), *flags)
        return found


class _ExtensionReader(_Reader):
    """Reads the table of an extension. Nearly all flags are allowed, since it is a separate library."""

    _may_lead_out = True

    def extension(self, others: Sequence[str]) -> Extension:
        """Return the extension; ``others`` are the names of the extensions before it."""
        name, suffix = self._table["name"], self._table.get("suffix", "")
        if not _PACKAGE.fullmatch(name) or name.partition(".")[0] in _OF_TORCH:
            self._fault("name", f"{name} is no name that a module beside torch can have", name)
        elif name in others:
            self._fault("name", f"{name} has another extension already", name)
        if suffix and not _SUFFIX.fullmatch(suffix):
            self._fault("suffix", f"{suffix} is not the end of a library's name, as .so is", suffix)
        excluded = self._files("exclude", OF_EXTENSIONS)
        sources = tuple(path for path in self._files("sources", OF_EXTENSIONS) if path not in excluded)
        if not sources and not self.faults:
            self._fault("name", f"{name} has no sources", name)
        settings = replace(
            self._empty,
            given=self._table,
            include_dirs=self._folders("include-dirs"),
            flags=ExtraFlags(
                (*self._macros, *self._flags("cxx-flags", self._listed("cxx-flags"))),
                (*self._macros, *self._flags("nvcc-flags", self._listed("nvcc-flags"), is_cuda=True)),
            ),
            libraries=self._matching("libraries", _LIBRARY, _NO_LIBRARY),
            library_dirs=self._folders("library-dirs"),
            kept_out=tuple(self._listed("exclude-libraries")),
            licenses=self._files("license-files"),
        )
        return Extension(name, suffix, sources, self._flags("link-flags", self._listed("link-flags")), settings)

    def _flags(self, key: str, words: Iterable[str], written: str = "", *, is_cuda: bool = False) -> tuple[str, ...]:
        found = list(words)
        for word in found:
            what = _misplaced(word, is_macro=key == "define") if key != "link-flags" else ""
            if what and not _is_header(word):
                self._fault(key, f"{word}: {what}", word)
            elif _OF_BUILD.fullmatch(word):
                self._fault(key, f"{word}: the build passes what the compiler does, reads and writes", word)
        # Make headers after -include absolute: compilers run in another folder.
        for number, last in enumerate(found[:-1], 1):
            header = self._root / found[number]
            if last == "-include" and header.is_file():
                found[number] = os.path.normpath(header)
        # Drop this macro, which may be for another torch.
        return tuple(word for word in found if not word.startswith("-D_GLIBCXX_USE_CXX11_ABI"))


def _is_header(word: str) -> bool:
    """Return whether a flag makes the compiler read a header before each source: ``-include``, ``-imacros``."""
    found = _HEADERS.match(word)
    return bool(found and found["file"])


def _misplaced(word: str, *, is_macro: bool) -> str:
    """Return the remedy if a word is several flags, or belongs elsewhere; else empty. Macros may have blanks."""
    if found := _HEADERS.match(word):
        return "write #include into the sources" if found["file"] else "folders of headers belong into include-dirs"
    return "several flags; write them as a list" if re.search(r"\s-", word) and not is_macro else ""


def flag_in(message: str) -> str:
    """Return the flag that a message of ``extra_flags`` names; empty if it names none."""
    words = [word for word in message.split() if word.startswith("-")]
    return words[-1] if words else ""


def is_specifier(text: object) -> bool:
    """Return whether a value is a version specifier, as in requirements for pip: ``<2.15``."""
    try:
        SpecifierSet(text if isinstance(text, str) else "no text")
    except InvalidSpecifier:
        return False
    return True


def is_for(releases: object, release: str) -> bool:
    """Return whether ``release`` is one of ``releases``; True if it is empty, or ``releases`` is not a specifier."""
    return not (release and is_specifier(releases)) or SpecifierSet(str(releases)).contains(release, prereleases=True)
