"""Verbs, and the options that users set on the command line, in variables, or in settings of a build frontend. Uses
only the standard library.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .core.cuda_settings import CudaArchs, CudaSettings
from .core.folders import is_native
from .core.layout import DIST, IS_CHECKOUT, REPOSITORY, Layout, TorchVersion, expanded, native_folders
from .core.wording import SPELLED

# The values of BUILD, DELIVERY and GAPS.
GRAFT, SOURCE = "graft", "source"
WHEEL, DEVELOP, THIN = "wheel", "develop", "thin-wheel"
ERROR, OPERATORS, ALLOW = "error", "operators", "allow"
# The formats in which `check` prints findings on standard output.
FORMATS = TEXT, GITHUB, JSON = "text", "github", "json"
# The value of PIN that selects the torch installed for PYTHON.
INSTALLED = "installed"


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text or 'nothing'} is not a positive number")
    return int(text)


def _switch(text: str) -> bool:
    if text not in ("", "0", "1"):  # for example a folder behind `--watch`
        raise ValueError(f"{text} is neither 0 nor 1")
    return text == "1"


def _versions(text: str) -> TorchVersion:
    return TorchVersion(" ".join(dict.fromkeys(text.split())))


def _path(text: str) -> Path | None:
    return expanded(text) if text else None


def _file(text: str) -> Path | None:
    """Return the path of a file. Expand a pattern that matches one file: shells do not expand `WHEEL=dist/*.whl`."""
    path = _path(text)
    if path is None or path.exists():
        return path
    matches = [*path.parent.glob(path.name)]
    return matches[0] if len(matches) == 1 else path


def _python() -> str:
    """Return the Python of the active virtual environment, or the one that Graft runs on."""
    active = Path(os.environ.get("VIRTUAL_ENV", ""), "bin/python")
    return str(active) if not IS_CHECKOUT and active.is_file() else sys.executable


def _native() -> str:
    """Return the default native folder: the checkout's; if Graft is installed, ``native`` or the current folder."""
    if IS_CHECKOUT:
        return str(REPOSITORY / "native")
    return "native" if is_native(Path("native")) else "."


# Variables that other programs read as well, PyTorch's own build for example.
SHARED = ("CUDA_HOME", "CXX", "MAX_JOBS")


@dataclass(frozen=True)
class Name:
    """A name of an option: its own, or an alias.

    Args:
        word: the variable of make.
        value: the option's value if this name is a switch that is on; else empty.
    """

    word: str
    value: str = ""

    @property
    def key(self) -> str:
        """The name for Python and for build frontends."""
        return self.word.removeprefix("GRAFT_").lower()

    @property
    def variable(self) -> str:
        """Its environment variable, with the prefix GRAFT_: other programs set short names, as WSL sets NAME."""
        return self.word if self.word in SHARED or self.word.startswith("GRAFT_") else f"GRAFT_{self.word}"

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.key.replace('_', '-')}"


def _option(
    default: str,
    help_: str,
    read: Callable[[str], Any] = str,
    *,
    word: str = "",
    words: Sequence[str] = (),
    aliases: Sequence[Name] = (),
) -> Any:
    """Declare an option.

    Args:
        default: its value, as a user would write it.
        help_: what it is for, in one line.
        read: converts the user's text; a ``ValueError`` has the message for the user.
        word: the name of make's variable; by default the option's name in capitals.
        words: the only values, if these are few.
        aliases: other names, which help does not list.
    """
    more = {"word": word, "words": words, "aliases": aliases}
    return field(metadata={"default": default, "help": help_, "read": read, **more})


@dataclass(frozen=True)
class Request:
    """The values of all options. Each field is a flag (``--cuda-archs``), a variable (``GRAFT_CUDA_ARCHS``) and a
    variable of make (``CUDA_ARCHS``).
    """

    pin: TorchVersion = _option(
        "",
        "the PyTorch to build on, such as 2.14.1 (thin-wheel, test-matrix: several); by default the first that can be "
        "had (check, new: of PYTHON; test-matrix: all with a wheel)",
        _versions,
        aliases=[Name("PINS")],
    )
    native: tuple[Path, ...] = _option(
        _native(),
        "the native folder, or several, separated by spaces",
        native_folders,
    )
    out: Path | None = _option("", "the output folder of wheels or patches (default: dist)", _path)
    jobs: int = _option(
        str(os.cpu_count() or 1),
        "compilers to run at once; or MAX_JOBS",
        _positive,
        aliases=[Name("MAX_JOBS")],
    )
    launcher: str = _option("", "compiler launcher, for example ccache, sccache or distcc")
    cuda_archs: CudaArchs = _option(
        "",
        'GPU architectures, such as "80 90a"; by default those of the base, for develop the GPUs here; none: no CUDA',
        CudaArchs,
    )
    cuda_home: str = _option("", "a CUDA toolkit, used if it is of the base's version; by default pip downloads one")
    cxx: str = _option("g++", "the C++ compiler, a g++; aarch64-linux-gnu-g++ builds for ARM")
    wheel: Path | None = _option("", "the base wheel as a file; by default pip downloads it", _file)
    build: str = _option(
        GRAFT, "graft: onto the official wheel; source: all of PyTorch, from its sources", words=(GRAFT, SOURCE)
    )
    delivery: str = _option(
        WHEEL, "what is tested: wheel, or develop or thin-wheel, on the official torch", words=(WHEEL, DEVELOP, THIN)
    )
    source: str = _option("", "a checkout of PyTorch, whose changes are built; for BUILD=source also a mirror")
    base: str = _option(
        "", "with SOURCE: the commit that its files are compared with, as HEAD~1; by default it is found"
    )
    files: str = _option("", 'with SOURCE: sources to compile with its headers: "native/cpu/SumKernel.cpp"')
    gaps: str = _option(
        OPERATORS,
        "with SOURCE, what cannot be built: error refuses it; operators builds the rest, but fails if an operator is "
        "left out; allow only lists it",
        words=(ERROR, OPERATORS, ALLOW),
        aliases=[Name("STRICT", ERROR), Name("KEEP_GOING", ALLOW)],
    )
    branch: str = _option("", "the branch of SOURCE, or another commit")
    diff: Path | None = _option("", "a diff to what is checked out in SOURCE, instead of a branch", _path)
    python: str = _option(_python(), "the Python to build for, or whose torch is used")
    schema: str = _option("", 'such as "my_op(Tensor self, *, float alpha=1.0) -> Tensor"')
    kind: str = _option("plain", "plain, kernel, pointwise or composite")
    variants: str = _option("", "inplace, out or inplace,out")
    project: str = _option("", "the folder of a new Python project, with pyproject.toml, for the operator")
    watch: bool = _option("", "1 builds again on every save", _switch)
    debug: bool = _option("", "1 compiles NATIVE with -O0 -g, for gdb", _switch, word="GRAFT_DEBUG")
    name: str = _option("", "the name of its package; by default that of the native folder")
    version: str = _option("0.1", "its version")
    torch: str = _option("", "a version of torch, such as 2.16.0 or 2.13.0+cpu, or a wheel file")
    index: str = _option("", "an additional package index for pip")

    @property
    def pins(self) -> tuple[TorchVersion, ...]:
        """The versions in ``pin``; the layout is for one."""
        return tuple(map(TorchVersion, self.pin.split()))

    @property
    def layout(self) -> Layout:
        """The folders of the build."""
        out = self.out or DIST
        cuda = CudaSettings(self.cuda_archs, self.cuda_home)
        return Layout(self.pin, self.native, out, launcher=self.launcher, cuda=cuda, cxx=self.cxx)


@dataclass(frozen=True)
class Option(Name):
    """A field of ``Request``, as a user sees it."""

    default: str = ""
    help: str = ""
    read: Callable[[str], Any] = str
    words: Sequence[str] = ()
    aliases: Sequence[Name] = ()

    @property
    def names(self) -> tuple[Name, ...]:
        """Its own name, then the others."""
        return (self, *self.aliases)

    @property
    def is_switch(self) -> bool:
        """Whether the flag may be given without a value, which means 1."""
        return self.read is _switch

    def help_with(self, verbs: Sequence[Verb]) -> str:
        """Return its help, with the verbs that take it in front if they are few."""
        takers = [verb.name for verb in verbs if self.key in verb.takes.split()]
        return f"for {', '.join(takers)}: {self.help}" if len(takers) < 4 else self.help

    @property
    def holds(self) -> str:
        """The type of its value, for tables."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}" if self.words else _HOLDS[self.read]


_HOLDS = {
    _switch: "0 or 1",
    _positive: "a number",
    _path: "a path",
    _file: "a file",
    _versions: "a version",
    native_folders: "folders",
    CudaArchs: "a list",
    str: "a text",
}
OPTIONS = {
    each.name: Option(**{**each.metadata, "word": each.metadata["word"] or each.name.upper()})
    for each in fields(Request)
}
NAMES = [name for option in OPTIONS.values() for name in option.names]


if not IS_CHECKOUT:
    SPELLED.update({each.word: (each.flag, each.flag) for each in OPTIONS.values()})

# How messages spell the options for a build frontend, whose users do not type Graft's command line.
AS_VARIABLES = {each.word: (each.flag, each.variable) for each in OPTIONS.values()}


# The pin that a verb uses if none is given: FOUND, the first whose wheel pip can download; THERE, the torch that PYTHON
# has, or else FOUND; LAST, that of the last build; RELEASE, the newest release with a wheel; OLDEST, the oldest pinned
# release.
FOUND, THERE, LAST, RELEASE, OLDEST, NONE = "found", "there", "last", "release", "oldest", ""


@dataclass(frozen=True)
class Verb:
    """A command.

    Args:
        name: its name on the command line.
        help: what it does, in one line.
        run: the function that does it, as ``module:function``. It is imported only if the verb is used: starting Python
            is a large part of a build that has nothing to do. It takes a ``Request``, and the verb's own flags.
        takes: the names of its options, fields of ``Request``, separated by spaces.
        pin: which pin it uses if none is given: one of the constants above.
        own: adds flags that no other verb has.
        has_pins: whether PIN may name several versions.
    """

    name: str
    help: str
    run: str
    takes: str = ""
    pin: str = NONE
    own: Callable[[argparse.ArgumentParser], object] | None = None
    has_pins: bool = False

    def is_live(self, request: Request) -> bool:
        """Return whether the request builds the changes in a checkout's working tree."""
        takes = self.takes.split()
        return bool("gaps" in takes and request.source and request.build != SOURCE)
