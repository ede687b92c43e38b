"""The options of adopt: from the command line, and from adopt.toml, which adopt reads again at each run."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..cpp.syntax import is_keyword
from ..inputs.pyproject import read_toml, tomllib

FILE = "adopt.toml"

_TEXT = """# What `graft adopt` is asked for. After an edit, and after an upgrade of the package, run
# `graft adopt --native <this folder>` again.
{lines}
"""
# The keys of the file, each with its purpose.
HELP = {
    "source": "the source tree of the extension, which is built with the operators; none if it is installed",
    "modules": "the modules that register the operators; the first call imports the first",
    "only": 'the operators to adopt, all by default; patterns, here and below: ["*_norm"]',
    "except": "the operators to leave out",
    "names": 'names of your own for operators: {f = "my_f"}',
    "prefix": "whether all names begin with the namespace",
    "own": "operators that get the extension's kernels and formulas in derivatives.yaml, in place of calls",
    "namespace": "the namespace of pybind11 functions; by default that of the package's name",
    "backends": "the dispatch keys that pybind11 functions have kernels for; by default CPU, and CUDA if built for it",
    "writes": 'the arguments that a function writes, or an operator untold: {f = ["out"]}; {"*" = []} for none',
    "fakes": 'what makes the empty results of pybind11 functions: {f = "package.module:f", "g*" = "torch.my_fakes"}',
    "methods": 'operators whose first argument is renamed `self`, which makes them methods; ["all"] for all',
}


@dataclass(frozen=True)
class Asked:
    """The options of adopt.

    Args:
        source: the path of the source tree, relative to the folder; empty for an installed package.
        modules: the modules to import.
        only: the operators to adopt; all if empty.
        except_: the operators to leave out.
        names: the names that the author chose, by the operator's own name.
        prefix: whether all names begin with the namespace.
        methods: the operators whose first argument is renamed `self`; ``all`` for all operators.
        own: the operators whose entries take over the extension's kernels and formulas.
        namespace: the namespace of pybind11 functions; the package's name if empty.
        backends: the dispatch keys that pybind11 functions have kernels for; if empty, CPU, and CUDA if built for it.
        writes: the arguments that functions write, and operators whose schemas do not declare it, by name.
        fakes: the fake implementation of each function, as ``package.module:function``, or a module with a function of
            the same name.
    """

    source: str = ""
    modules: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    except_: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    prefix: bool = False
    methods: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    namespace: str = ""
    backends: tuple[str, ...] = ()
    writes: Mapping[str, list[str]] = field(default_factory=dict)
    fakes: Mapping[str, str] = field(default_factory=dict)

    @property
    def _values(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def choices(self) -> dict[str, Any]:
        """The options for pybind11 functions: the arguments of ``PybindChoices``."""
        return {name: getattr(self, name) for name in ("namespace", "backends", "only", "except_", "writes", "fakes")}

    def text(self, before: str = "") -> str:
        """Return the text of adopt.toml, with the comments of its earlier text ``before``."""
        lines = {_key(name): f"{_key(name)} = {_toml(value)}" for name, value in self._values.items()}
        if not before:
            return _TEXT.format(lines="\n".join(f"{line}  # {HELP[name]}" for name, line in lines.items()))
        for name, line in lines.items():
            if self._values[field_of(name)] != _parsed(tomllib.loads(before))._values[field_of(name)]:
                start, end = _span(before, name)
                before = f"{before[:start]}{line}{before[end:]}" if end else f"{line}\n{before}"
        return before


def _span(text: str, key: str) -> tuple[int, int]:
    """Return the start and end of a TOML key and its value, without a trailing comment; (0, 0) if there is none."""
    if found := re.search(rf"^{key}[ \t]*=", text, re.M):
        for end in re.finditer(r"[ \t]*(?:#|$)", text[found.end() :], re.M):
            place = found.end() + end.start()
            with suppress(tomllib.TOMLDecodeError):
                tomllib.loads(text[found.start() : place])
                return found.start(), place
    return 0, 0


def field_of(key: str) -> str:
    """Return the field name of a key. A Python keyword gets an underscore at its end."""
    return f"{key}_" if keyword.iskeyword(key) else key


def _key(field_: str) -> str:
    return field_.rstrip("_")


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())}}}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def read_asked(folder: Path) -> Asked:
    """Read the adopt.toml of a folder. Missing keys have their defaults."""
    file = folder / FILE
    if not file.is_file():
        return Asked()
    table, defaults = read_toml(file), Asked()
    faults = [f"{file}: no key `{name}`" for name in table if name not in HELP]
    for name in HELP:
        default = getattr(defaults, field_of(name))
        if name in table and not _is_like(name, table[name], default):
            faults.append(f"{file}: {name} is not {_KINDS[type(default)]}")
    names = table["names"] if isinstance(table.get("names"), dict) else {}
    wrong = [name for name in map(str, names.values()) if not _is_name(name)]
    faults += [f"{file}: names: {name} is no name in Python and C++" for name in wrong]
    faults += [f"{file}: names: `{each}`: two operators cannot have one name" for each in names if _is_pattern(each)]
    if faults:
        raise UsageError("\n".join(faults), todo=f"write some of: {', '.join(HELP)}")
    return _parsed(table)


def _parsed(table: Mapping[str, Any]) -> Asked:
    values: dict[str, Any] = {field_of(key): value for key, value in table.items()}
    tuples = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return replace(Asked(), **values | tuples)


def _is_pattern(name: str) -> bool:
    return not {*"*?["}.isdisjoint(name)


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and not is_keyword(name)


_KINDS = {
    bool: "true or false",
    str: "a text",
    tuple: "a list of names",
    dict: "a table such as {f = ...}, of lists for writes and of texts for names and fakes",
}


def _is_like(name: str, value: Any, default: Any) -> bool:
    """Return whether the value of a key has the type of its default."""
    if isinstance(default, tuple):
        return _is_texts(value)
    if isinstance(default, dict) and isinstance(value, dict):
        return all(_is_texts(each) if name == "writes" else isinstance(each, str) for each in value.values())
    return isinstance(value, type(default))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# The keys that are lists of operators.
_LISTS = ("only", "except_", "own", "methods")


def with_given(asked: Asked, given: Mapping[str, Any]) -> Asked:
    """Return the options, changed by the command line: it extends lists of operators, and replaces other values."""
    added = {name: (*getattr(asked, name), *value) for name, value in given.items() if name in _LISTS}
    return replace(asked, **{name: value for name, value in given.items() if value} | _operators(added))


def _operators(lists: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the lists without duplicates, and without namespaces: ``ns::f`` becomes ``f``.

    Raises:
        UsageError: a pattern has a namespace.
    """
    if wrong := [each for values in lists.values() for each in values if "::" in each and _is_pattern(each)]:
        raise UsageError(f"{wrong[0]}: patterns are for names without the namespace", todo="leave the namespace out")
    return {name: tuple(dict.fromkeys(each.rpartition("::")[2] for each in values)) for name, values in lists.items()}


def is_tree(word: str) -> bool:
    """Return whether a word names a source tree: a path, or a folder with a name that no module can have."""
    if "/" in word or word.startswith(("~", ".")):
        return True
    return not all(part.isidentifier() for part in word.split(".")) and bool(word) and Path(word).is_dir()
