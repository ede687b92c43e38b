"""The texts of ``load_inline`` as the files of a native folder."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path, PurePosixPath

from ..core.errors import UsageError
from ..core.files import lay_out_files
from ..core.layout import expanded
from ..inputs.native import (
    AUTOCAST,
    DERIVATIVES,
    DOCS,
    DOCS_SUFFIX,
    FOLDERS,
    FUNCTIONS,
    HEADER_SUFFIXES,
    PYTHON,
    PYTHON_SUFFIXES,
)
from ..inputs.spelling import is_schema, respelled
from ..new.choices import camel, entry_of, kernel_of
from ..new.rendering import rendered
from .cell import Written
from .wrapping import as_new_op, ended, in_lines, lacks_namespace

# The header with the includes that new-op writes.
_INCLUDES = "graft_includes.h"

# The arguments of load_inline, by the file that they become.
_ARGUMENTS = {str(FUNCTIONS): "functions", str(DERIVATIVES): "derivatives", str(AUTOCAST): "autocast"}

_OPERATOR = re.compile(r"^[ \t]*-[ \t]+(?:func|name):[ \t]*['\"]?([A-Za-z_][\w.]*)[ \t]*\(", re.M)


@dataclass(frozen=True)
class Texts:
    """The files of a native folder, as text.

    Args:
        functions: native_functions.yaml, or one schema. Its kernel is then in ``cpp``.
        derivatives: derivatives.yaml.
        cpp: the C++ of the operators.
        cpu: kernels that are compiled for each CPU capability.
        cuda: kernels for CUDA.
        autocast: autocast.yaml.
        headers: headers, by path in the folder.
        python: Python files, by path below ``python/``.
        docs: docstrings, by operator.
    """

    functions: str
    derivatives: str = ""
    cpp: str = ""
    cpu: str = ""
    cuda: str = ""
    autocast: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    docs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def name(self) -> str:
        """The name of the first operator, without an overload."""
        if not self._operators:
            todo = 'pass a schema, such as "my_op(Tensor self) -> Tensor", or name= if the folder has no operators'
            raise UsageError("functions: it has no operator", todo=todo)
        return self._operators[0].partition(".")[0]

    @property
    def cflags(self) -> tuple[str, ...]:
        """The flags that g++ and nvcc need for the sources of ``files``."""
        return ("-include", _INCLUDES) if any(map(lacks_namespace, self._sources.values())) else ()

    @property
    def given(self) -> dict[str, str]:
        """The user's files with their original text, by path in the folder."""
        return self._others | self._sources

    @property
    def written(self) -> dict[str, Written]:
        """The user's texts, by path in the folder."""
        labels = {**_ARGUMENTS, **{name: PurePosixPath(name).parent.name or "cpp" for name in self._sources}}
        found = {name: Written(labels.get(name, name), text.split("\n")) for name, text in self.given.items()}
        if is_schema(self.functions):
            schema = self.functions.strip()
            found[str(FUNCTIONS)] = Written("functions", [schema], schema)
        return found

    def files(self) -> dict[str, str]:
        """Return the files for a build, by path in the folder. The user's lines keep their numbers."""
        made = {name: in_lines(name, text) for name, text in self._sources.items()}
        includes = {_INCLUDES: f"#pragma once\n{self._includes}"} if self.cflags else {}
        return self._others | made | includes

    def write(self, folder: Path) -> None:
        """Make a folder contain exactly ``files``. Files that do not change keep their times."""
        lay_out_files(folder, _encoded(self.files()))

    def save(self, folder: str | Path) -> Path:
        """Write a native folder that is complete by itself. Return its path.

        Raises:
            UsageError: the folder has other files.
        """
        path = expanded(folder)
        others = {name: text.lstrip("\n") for name, text in self._others.items()}
        files = _encoded(others | {name: as_new_op(name, text, self._includes) for name, text in self._sources.items()})
        if path.exists() and not (path.is_dir() and _holds_no_others(path, files)):
            what = "it is not empty" if path.is_dir() else "it is a file"
            raise UsageError(f"{path}: {what}", todo="name a folder that does not exist, or an empty one")
        lay_out_files(path, files)
        return path

    @cached_property
    def _operators(self) -> list[str]:
        """The operators, with their overloads, in order."""
        if is_schema(self.functions):
            return [self.functions.partition("(")[0].strip()]
        return _OPERATOR.findall(self.functions) or _OPERATOR.findall(self.derivatives)

    @property
    def _sources(self) -> dict[str, str]:
        """The C++ that is compiled, as given, by path in the folder."""
        stem = camel(self._operators[0]) if self._operators else "Kernels"
        named = {f"{stem}.cpp": self.cpp, f"cpu/{stem}Kernel.cpp": self.cpu, f"cuda/{stem}.cu": self.cuda}
        return {name: text for name, text in named.items() if text.strip()}

    @property
    def _others(self) -> dict[str, str]:
        """The files other than sources, by path in the folder: YAML, Python, docstrings and headers."""
        functions = _entry(self.functions) if is_schema(self.functions) else self.functions
        texts = {str(FUNCTIONS): functions, str(DERIVATIVES): self.derivatives, str(AUTOCAST): self.autocast}
        texts |= {f"{PYTHON}/{name}": text for name, text in self.python.items()}
        texts |= {f"{DOCS}/{name}{DOCS_SUFFIX}": text.strip("\n") for name, text in self.docs.items()}
        return {name: ended(textwrap.dedent(text)) for name, text in texts.items() if text.strip()} | {
            name: ended(text) for name, text in self.headers.items()
        }

    @property
    def _includes(self) -> str:
        names = dict.fromkeys(each.partition(".")[0] for each in self._operators)
        return rendered("parts/includes.in", {"ops": [*names]})


def _check(texts: Texts) -> None:
    """Check the types of all fields, the paths, and that a schema alone has a kernel.

    Raises:
        UsageError: names the field.
    """
    for each in fields(texts):
        value = getattr(texts, each.name)
        if each.type == "str":
            _require_text(each.name, value)
        elif not isinstance(value, Mapping):
            raise UsageError(
                f"{each.name}: {type(value).__name__} instead of a dict", todo=f'write {each.name}={{"name": "text"}}'
            )
        else:
            for name, text in value.items():
                _require_path(each.name, name)
                _require_text(f"{each.name}[{name!r}]", text)
    if is_schema(texts.functions) and not texts.cpp.strip():
        other = "cuda" if texts.cuda.strip() else "cpu" if texts.cpu.strip() else ""
        if other:
            kernel = f"{texts.name}_{other}"
            todo = (
                f'write functions="- func: {texts.functions.strip()}\\n  dispatch:\\n    {other.upper()}: {kernel}\\n"'
            )
            raise UsageError("functions: a schema alone needs its kernel in cpp", todo=todo)
        raise UsageError(f"cpp: there is no kernel for {texts.name}", todo="write the kernel, as text, into cpp=")


def _require_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        todo = "pass the text of the file, for example Path(...).read_text()"
        raise UsageError(f"{what}: {type(value).__name__} instead of text", todo=todo)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what}: not text that can be written: {error}", todo="delete these characters") from error


def _require_path(what: str, name: object) -> None:
    """Check a key of ``headers``, ``python`` or ``docs``."""
    suffixes, todo = {
        "headers": ((*HEADER_SUFFIXES, ".cuh"), 'name headers as sources include them: "clip.h"'),
        "python": (PYTHON_SUFFIXES, 'name files as below torch: "_decomp/decompositions.py"'),
        "docs": (("",), "name docstrings after operators"),
    }[what]
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what}: {name!r} is not a name", todo=todo)
    path = PurePosixPath(name)
    folder = path.parts[0] if path.parts[1:] else ""
    if path.is_absolute() or ".." in path.parts or str(path) != name:
        raise UsageError(f"{what}: {name!r} is not a path in a folder", todo=todo)
    is_unread = what == "headers" and folder and folder not in {*FOLDERS} - {PYTHON.name, DOCS.name}
    if path.suffix not in suffixes or is_unread or (what == "docs" and not name.isidentifier()):
        raise UsageError(f"{what}: no build reads a file named {name!r}", todo=todo)


def _entry(schema: str) -> str:
    """Return the entry that new-op would write for a schema."""
    spelled = respelled(schema)
    name, _, rest = spelled.partition("(")
    arguments = rest.rpartition(") -> ")[0].split(", ")  # as torchgen does
    typed = [each.partition("=")[0].rpartition(" ") for each in arguments]
    positional = typed[: arguments.index("*")] if "*" in arguments else typed
    has_self = any(each == "self" for _, _, each in positional)
    has_generator, has_symint = (any(word in kind for kind, _, _ in typed) for word in ("Generator", "SymInt"))
    shared = entry_of(name, "plain", has_self=has_self, has_generator=has_generator)
    _, dispatch = kernel_of(name, "plain", "functional", has_symint=has_symint)
    none = {"delegate": "", "autogen": "", "inplace": None, "out": None}
    return rendered("any/native_functions.yaml.in", {**shared, **none, "schema": spelled, "dispatch": dispatch})


def _encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def _holds_no_others(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether a folder is empty, or holds exactly ``files``."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and (name not in files or path.read_bytes() != files[name]):
            return False
    return not any(folder.iterdir()) or all((folder / name).exists() for name in files)
