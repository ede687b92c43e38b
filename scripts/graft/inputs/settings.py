"""Settings of a native folder: the table ``[tool.graft]`` of the nearest pyproject.toml at or above the folder whose
``native`` names it. Paths in it are relative to that file.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.console import WARNING, say
from ..core.errors import UsageError
from ..core.extra_flags import NO_EXTRA, ExtraFlags, extra_flags
from ..core.keys import COMPILED, FILE, KEYS
from ..core.process import UNTRANSLATED, run
from .toolchain import Toolchain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# These are no settings of compilers.
_OF_PROJECTS = ("native", "torch")

_MACRO = re.compile(r"[A-Za-z_]\w*(\([^()]*\))?(=[^\n]*)?")
_LIBRARY = re.compile(r"\w[\w.+-]*")

# Flags with which sources need a processor that not every user has.
_OF_PROCESSORS = re.compile(
    r"-m(arch|cpu|tune)=native|-m(arch|cpu)=.*|-m(avx|amx|bmi|fma|f16c|sse[34]|ssse3|xop|sha|vaes|vpclmul|gfni).*"
)
_UNKNOWN_FLAG = re.compile(r"option '([^'\n]+)'|(-[\w=.+-]+)")


@dataclass(frozen=True)
class Settings:
    """The settings of a native folder. ``settings_of`` reads them.

    Args:
        file: the pyproject.toml; None if there are no settings.
        given: what decides about a build, as written.
        sources: the files that ``sources`` names, but for those of ``exclude``.
        excluded: the sources that are not compiled.
        include_dirs: folders of headers.
        flags: flags of compilers.
        cpu_flags: additional flags of sources, by file.
        libraries: the names of libraries to link.
        library_dirs: where these are searched.
        kept_out: patterns of the names of libraries that no wheel contains.
        licenses: the files with licenses.
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

    @property
    def root(self) -> Path:
        """The folder that paths are relative to."""
        assert self.file is not None
        return self.file.parent

    @property
    def stamp(self) -> tuple[str, ...]:
        """What of this decides about a build. With -march=native, that includes the processor."""
        return (json.dumps(self.given, sort_keys=True), *self.flags.settings) if self.given else ()

    def tell_processors(self, *, is_for_edits: bool) -> None:
        """Say which flags need a processor that not every user has.

        Raises:
            UsageError: what ships was compiled for the processor of this machine, whatever that is.
        """
        for key, flags in (("cxx-flags", self.flags.cflags), ("nvcc-flags", self.flags.cuda_cflags)):
            for flag in filter(_OF_PROCESSORS.search, flags):
                if is_for_edits:
                    say(self.fault(key, f"{flag}: the result is for such processors only", flag))
                elif flag.endswith("=native"):
                    todo = "leave it out, or write what the sources need into cpu-flags"
                    raise UsageError(self.fault(key, f"{flag}: a wheel is for other processors, too", flag), todo=todo)
                else:
                    what = f"{flag}: on other processors the wheel crashes; cpu-flags gives an error that names it"
                    say(self.fault(key, what, flag), WARNING)

    def is_own(self, path: Path, native: Path) -> bool:
        """Return whether a path is below the native folder, or the folder of these settings."""
        return path.is_relative_to(native) or path.is_relative_to(self.root)

    def fault(self, key: str, what: str, value: str = "") -> str:
        """Return a message about a key, with its line."""
        assert self.file is not None
        return f"{self.file}:{line_of(self._text, key, value)}: [tool.graft] {key}: {what}"

    @cached_property
    def _text(self) -> str:
        return self.file.read_text(encoding="utf-8", errors="replace") if self.file else ""

    def require_none(self) -> None:
        """Check that there are no settings: PyTorch's own build has its own."""
        if self.given:
            faults = [self.fault(key, "PyTorch's own build has no such settings") for key in self.given]
            todo = "build onto a wheel, or write the folder as ATen is written"
            raise UsageError("\n".join(faults), todo=todo)

    def require_accepted(self, toolchain: Toolchain) -> None:
        """Check that the compiler accepts the flags, and that PyTorch's headers accept the standard.

        Raises:
            UsageError: names the flag.
        """
        try:
            self.flags.require_standard(toolchain.standard)
        except UsageError as error:
            raise UsageError(
                self.fault("cxx-flags", f"{error.what}: {error.cause}", "-std"), todo=error.todo
            ) from error
        for key, flags in (
            ("cxx-flags", self.flags.cflags),
            *(("cpu-flags", each) for each in self.cpu_flags.values()),
        ):
            command = [toolchain.compiler, *flags, "-fsyntax-only", "-x", "c++", "/dev/null"]
            done = run(command, env=UNTRANSLATED, check=False) if flags else None
            if done and done.returncode != 0:
                found = _UNKNOWN_FLAG.search(done.stdout)
                flag = (found[1] or found[2]) if found else ""
                first = next((line for line in done.stdout.splitlines() if "error" in line), done.stdout.strip())
                raise UsageError(self.fault(key, first, flag), todo="correct the flag, or leave it out")
        for flag in dict.fromkeys(flag for flags in self.cpu_flags.values() for flag in flags):
            asks = f'int main() {{ return __builtin_cpu_supports("{flag.removeprefix("-m")}"); }}'
            if run([toolchain.compiler, "-fsyntax-only", "-x", "c++", "-"], stdin=asks, check=False).returncode != 0:
                what = f"{flag}: {toolchain.compiler} cannot tell whether a processor of {toolchain.machine} has this"
                raise UsageError(self.fault("cpu-flags", what, flag), todo="leave it out, or use a newer g++")


NO_SETTINGS = Settings()


def settings_of(native: Path) -> Settings:
    """Return the settings of a native folder.

    Raises:
        UsageError: lists what is wrong with them, each with its line.
    """
    for folder in (native, *native.parents):
        file = folder / FILE
        if not file.is_file() or b"graft" not in file.read_bytes():
            continue
        table = read_toml(file).get("tool", {}).get("graft")
        if isinstance(table, dict) and native in natives_of(folder, table):
            return _read(file, table)
    return NO_SETTINGS


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a pyproject.toml."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", todo="fix the syntax (https://toml.io)") from error


def natives_of(folder: Path, table: Mapping[str, Any]) -> list[Path]:
    """Return the native folders that the table of ``folder``'s pyproject.toml names."""
    return [(folder / each).resolve() for each in listed(table.get("native", ".")) if isinstance(each, str)]


def listed(value: Any) -> list[Any]:
    """Return what may be a text or a list as a list."""
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [None]


def faults_of(file: Path, table: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the keys of a table and the types of their values, each with its line."""
    text, faults = file.read_text(encoding="utf-8"), []
    for key, value in table.items():
        place = f"{file}:{line_of(text, key)}: [tool.graft]"
        if key not in KEYS:
            faults.append(f"{place} has no key `{key}`")
        elif not all(_is_texts(each) for each in _values(key, value)):
            faults.append(f"{place} {key} is not {KEYS[key].holds}")
    return faults


def _values(key: str, value: Any) -> list[Any]:
    if key != "cpu-flags":
        return [value]
    return [*value.values()] if isinstance(value, dict) else [None]


def _is_texts(value: Any) -> bool:
    return all(isinstance(each, str) and each and "\n" not in each for each in listed(value) or [None])


def line_of(text: str, key: str, value: str = "") -> int:
    """Return the line of a key of [tool.graft] in a pyproject.toml, or of a value there. tomllib does not tell."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*\[\s*tool\s*\.\s*graft\b", line)]
    first = starts[0] if starts else 0
    named = re.compile(rf"""\s*(\[\s*tool\s*\.\s*graft\s*\.\s*)?["']?{re.escape(key)}["']?\s*[\]=.]""")
    at = next((number for number in range(first, len(lines)) if named.match(lines[number])), first)
    held = (number for number in range(at, len(lines)) if value and value in lines[number])
    return next(held, at) + 1


def _read(file: Path, table: Mapping[str, Any]) -> Settings:
    faults = faults_of(file, table)
    if not faults:
        reader = _Reader(Settings(file), table)
        settings, faults = reader.settings(), reader.faults
    if faults:
        raise UsageError("\n".join(faults), todo=f"correct {file}; scripts/README.md lists the settings")
    return settings


class _Reader:
    """Reads the values of a table whose types are right. ``faults`` lists those that are wrong."""

    def __init__(self, empty: Settings, table: Mapping[str, Any]) -> None:
        self._empty = empty
        self._root = empty.root
        self._table = table
        self.faults: list[str] = []

    def settings(self) -> Settings:
        """Return the settings."""
        excluded = frozenset(self._files("exclude", COMPILED))
        macros = self._matching("define", _MACRO, "is no macro: write NAME or NAME=VALUE")
        return Settings(
            file=self._empty.file,
            given={key: value for key, value in self._table.items() if key not in _OF_PROJECTS},
            sources=frozenset(self._files("sources", COMPILED)) - excluded,
            excluded=excluded,
            include_dirs=self._folders("include-dirs"),
            flags=ExtraFlags(
                (*macros, *self._flags("cxx-flags", self._listed("cxx-flags"))),
                (*macros, *self._flags("nvcc-flags", self._listed("nvcc-flags"), is_cuda=True)),
            ),
            cpu_flags=self._cpu_flags(),
            libraries=self._matching("libraries", _LIBRARY, "is no name: write foo for libfoo.so", ""),
            library_dirs=self._folders("library-dirs"),
            kept_out=tuple(self._listed("exclude-libraries")),
            licenses=self._files("license-files"),
        )

    def _listed(self, key: str) -> list[str]:
        return listed(self._table.get(key, ()))

    def _fault(self, key: str, what: str, value: str = "") -> None:
        self.faults.append(self._empty.fault(key, what, value))

    def _matching(self, key: str, pattern: re.Pattern[str], fault: str, prefix: str = "-D") -> tuple[str, ...]:
        for each in self._listed(key):
            if not pattern.fullmatch(each):
                self._fault(key, f"{each} {fault}", each)
        return tuple(f"{prefix}{each}" for each in self._listed(key))

    def _folders(self, key: str) -> tuple[Path, ...]:
        found = {each: (self._root / Path(each).expanduser()).resolve() for each in self._listed(key)}
        for each, path in found.items():
            if not path.is_dir():
                self._fault(key, f"{each}: no such folder", each)
        return tuple(found.values())

    def _files(self, key: str, suffixes: Sequence[str] = ()) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(path for each in self._listed(key) for path in self._glob(key, each, suffixes)))

    def _glob(self, key: str, pattern: str, suffixes: Sequence[str] = ()) -> list[Path]:
        """Return the files that a pattern names; of those with other than these ``suffixes`` at most headers."""
        try:
            every = sorted(path for path in self._root.glob(pattern) if path.is_file())
        except (ValueError, NotImplementedError, OSError):
            every = []
        found = [path for path in every if not suffixes or path.suffix in suffixes]
        if any(not path.resolve().is_relative_to(self._root.resolve()) for path in found):
            self._fault(key, f"{pattern} leads out of {self._root}", pattern)
        elif not found:
            others = f" but {every[0].name}, which no compiler is called for" if every else ""
            self._fault(key, f"{pattern} matches no file{others}", pattern)
        return found

    def _flags(self, key: str, words: Iterable[str], *, is_cuda: bool = False) -> tuple[str, ...]:
        """Return flags that a source may have."""
        words = list(words)
        for word in words:
            if found := re.match("-(?:(include$)|I|isystem)", word):
                what = "write #include into the sources" if found[1] else "folders of headers belong into include-dirs"
                self._fault(key, f"{word}: {what}", word)
                return ()
        try:
            flags = extra_flags((), words) if is_cuda else extra_flags(words)
        except UsageError as error:
            self._fault(key, "; ".join(filter(None, (error.what, error.cause, error.todo))), _last_flag(error.what))
            return ()
        return flags.cuda_cflags if is_cuda else flags.cflags

    def _cpu_flags(self) -> dict[Path, tuple[str, ...]]:
        found: dict[Path, tuple[str, ...]] = {}
        for pattern, words in self._table.get("cpu-flags", {}).items():
            flags = self._flags("cpu-flags", listed(words))
            for word in flags:
                if not re.fullmatch(r"-m[a-z][\w.-]*", word) or word.startswith("-mno-"):
                    self._fault("cpu-flags", f"{word} names no feature of a processor, as -mavx512bf16 does", word)
            for path in self._glob("cpu-flags", pattern, COMPILED):
                found[path] = (*found.get(path, ()), *flags)
        return found


def _last_flag(message: str) -> str:
    words = [word for word in message.split() if word.startswith("-")]
    return words[-1] if words else ""


def tell_unused() -> None:
    """Say which variables of compilers are set and do not count: builds depend on nothing that is not written down."""
    for name, key in (
        ("CPATH", "include-dirs"),
        ("CPLUS_INCLUDE_PATH", "include-dirs"),
        ("LIBRARY_PATH", "library-dirs"),
    ):
        if os.environ.get(name):
            say(f"{name} is not used; write `{key}` into [tool.graft] of {FILE}", WARNING)
