"""Read the entries of native_functions.yaml and derivatives.yaml, with file and line of each key and value.

This is the one reader of the two files, and needs no torchgen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ..core.folders import DERIVATIVES
from .spelling import respelled

# The loader of libyaml is much faster, but not every PyYAML has it.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The most values that a file may have. PyTorch's own file has 100,000.
_LARGEST = 1_000_000

# The key of an entry that replaces PyTorch's own.
REPLACE = "replace"
# The key of a replacing entry with the releases of PyTorch that it is for: a version specifier, as for pip.
RELEASES = "releases"

# The line of an entry or of a key.
_BEGIN = re.compile(r"(?P<indent> *)(?P<dash>- +)?[\w.]+:(?P<rest>\s.*|$)")

# A schema with an argument as Python writes it, its name, and its type.
_OF_PYTHON = re.compile(r"\s*- +(?:func|name): +[\w.]+\([^'\"]*?(?<![=\w])(\w+) ?:(?!:) ?([\w.]+(?:\[.*?\])?)")

# A file, and a line and a column, counted from 1. Column 0 means that the line is enough.
Place = tuple[Path, int, int]
# A function that is called with the place of an error, what is wrong, and what to do.
Report = Callable[[Place, str, str], None]


# The word for PyTorch's own formula in a formula that replaces it; and formulas that are not expressions.
_STOCK = re.compile(r"(?<![\w.:])stock\b(?!\s*(?:\(|::))")
_NO_EXPRESSION = re.compile(r"auto_\w+$|not_implemented\b|non_differentiable$")


class FormulaError(ValueError):
    """A formula that cannot replace PyTorch's. ``key`` is its key in derivatives.yaml; may be empty."""

    def __init__(self, what: str, key: str = "") -> None:
        super().__init__(what)
        self.key = key


@dataclass(frozen=True)
class Entry:
    """One entry.

    Args:
        file: the YAML file.
        line: its first line.
        fields: the values by key.
        places: the place of each key.
        values: the place of each value.
        written: the schema as the file has it; the one in ``fields`` has torchgen's spelling.
        lines: its lines in the file.
    """

    file: Path
    line: int
    fields: dict[str, Any]
    places: dict[str, Place]
    values: dict[str, Place]
    written: str = ""
    lines: Sequence[str] = ()

    @property
    def schema(self) -> str:
        """The operator's schema."""
        return str(self.fields.get("func", self.fields.get("name", "")))

    @property
    def operator(self) -> str:
        """The operator's name with its overload: the text before the first parenthesis, if that is a name."""
        return self.schema.partition("(")[0].strip()

    @property
    def is_replacing(self) -> bool:
        """Whether it replaces PyTorch's own entry: it has the key ``replace``, which torchgen never sees."""
        return self.fields.get(REPLACE) is True

    @property
    def kernels(self) -> dict[str, str]:
        """The kernels that ``dispatch`` names, by dispatch key."""
        return kernels_of(self.fields)

    @property
    def kernel_names(self) -> list[str]:
        """The names of its kernels; without ``dispatch``, the kernel has the name of the operator."""
        return [*self.kernels.values()] or [self.operator.partition(".")[0]]

    def in_place_of(self, theirs: Mapping[str, Any]) -> Entry:
        """Return this entry merged into ``theirs``, PyTorch's entry for the same schema.

        Dispatch keys, and arguments with derivative formulas, that this entry does not name keep PyTorch's values.

        The word ``stock`` in its formulas is PyTorch's formula for the same arguments.

        Raises:
            FormulaError: PyTorch has one formula for several arguments, of which this entry names only some; or it has
                none for ``stock``.
        """
        ours = {key: value for key, value in self.fields.items() if key not in (REPLACE, RELEASES)}
        if "func" in ours:
            # From it, torchgen would generate kernels for CPU and CUDA again, but the entry may replace these.
            rest = {key: value for key, value in theirs.items() if key != "ufunc_inner_loop"}
            kernels = {**kernels_of(theirs), **self.kernels}
            return replace(self, fields={**rest, **ours, **({"dispatch": kernels} if kernels else {})})
        if "dispatch" in theirs and "dispatch" not in ours:
            about_all: dict[str, Any] = {
                key: ours.pop(key) for key in ("name", "output_differentiability") if key in ours
            }
            of_keys = {**theirs["dispatch"], "Default": _formulas(theirs["dispatch"].get("Default", {}), ours)}
            return replace(self, fields={**theirs, **about_all, "dispatch": of_keys})
        if isinstance(ours.get("dispatch"), dict):
            of_theirs = theirs.get("dispatch", {"Default": theirs})
            of_keys = {
                key: _with_stock(of_theirs.get(key) or {}, each) if isinstance(each, dict) else each
                for key, each in ours["dispatch"].items()
            }
            return replace(self, fields={**ours, "dispatch": of_keys})
        return replace(self, fields=ours if "dispatch" in ours else _formulas(theirs, ours))

    def place(self, key: str) -> Place:
        """Return the place of ``key``, or of the entry if it has no such key."""
        return self.places.get(key, (self.file, self.line, 0))

    def value(self, key: str, offset: int = 0) -> Place:
        """Return the place of the value of ``key``, shifted by ``offset`` characters."""
        file, line, column = self.values[key]
        return file, line, column + offset

    def word(self, place: Place, word: str) -> Place:
        """Return the place of the first ``word`` at or behind ``place`` in this entry; ``place`` if there is none."""
        file, first, start = place
        for number, text in enumerate(self.lines[first - self.line :] if first >= self.line else (), first):
            found = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)").search(text, start - 1 if number == first else 0)
            if found:
                return file, number, found.start() + 1
        return place


def kernels_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the kernels that the ``dispatch`` of an entry names, by dispatch key."""
    given = fields.get("dispatch")
    pairs = given.items() if isinstance(given, dict) else ()
    return {key.strip(): str(kernel) for keys, kernel in pairs for key in str(keys).split(",")}


def _formulas(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the derivative formulas ``theirs``, with those for the same arguments replaced by ``ours``."""
    named = {name for key in ours for name in names_in(key)}
    kept = {key: formula for key, formula in theirs.items() if key in ours or not names_in(key) <= named}
    for key in kept:
        if key not in ours and names_in(key) & named:
            raise FormulaError(f"PyTorch has one formula for `{key}`; write one for all of them")
    return {**kept, **_with_stock(theirs, ours)}


def _with_stock(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the formulas ``ours`` with the word ``stock`` replaced by the formula in ``theirs``."""
    of_names = {frozenset(names_in(key)): str(formula) for key, formula in theirs.items()}
    found = dict(ours)
    for key, formula in ours.items():
        if isinstance(formula, str) and _STOCK.search(formula):
            stock = of_names.get(frozenset(names_in(key)), "")
            if not stock or _NO_EXPRESSION.match(stock):
                has = f"`{stock}`, which is no expression" if stock else "none"
                raise FormulaError(f"`stock` is PyTorch's formula for `{key}`, but PyTorch has {has}", key)
            found[key] = f"({stock})".join(_STOCK.split(formula))
    return found


def names_in(key: str) -> set[str]:
    """Return the arguments, or results, that a key of derivatives.yaml names: ``self, other``."""
    return {name.strip() for name in key.split(",")}


def compose(path: Path, report: Report, copy: Path | None = None) -> yaml.Node | None:
    """Return the syntax tree of a YAML file, or of its ``copy``; None if it does not exist or is not YAML, which is
    reported.
    """
    if not (copy or path).is_file():
        return None
    text = (copy or path).read_text(encoding="utf-8", errors="replace")
    try:
        tree = yaml.compose(text, Loader)
        if tree is None or _size(tree, {}) < _LARGEST:
            return tree
        report((path, 1, 0), "its aliases stand for too many values", "write them out; `*` and `&` are not needed here")
        return None
    except RecursionError:
        report((path, 1, 0), "not YAML of entries: nested too deeply", "write it as PyTorch's own file")
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if (found := _misplaced(text)) and mark and found.line == mark.line:
            what = f"line {found.line + 1} is indented by {found.indent}, its siblings by {found.beside}"
            report((path, found.line + 1, found.indent + 1), what, f"indent it by {found.beside}")
            return None
        place = (path, mark.line + 1, mark.column + 1) if mark else (path, 1, 0)
        line = [*text.splitlines(), ""][place[1] - 1]
        todo = "indent with spaces" if re.match(r" *\t", line) else "quote the text, or fix the indentation"
        if argument := _OF_PYTHON.match(line):
            todo = f"write `{argument[2]} {argument[1]}`: the type stands before the name of an argument"
        report(place, f"not YAML: {error.problem}", todo)
    except yaml.YAMLError as error:
        report((path, 1, 0), f"not YAML: {error}", "delete that character")
    return None


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in ``node``, each alias counted as its target; at most ``_LARGEST``."""
    if id(node) not in known:
        known[id(node)] = _LARGEST  # while it is counted: a node may contain itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        each = [part for value in inner for part in (value if isinstance(value, tuple) else (value,))]
        known[id(node)] = min(_LARGEST, 1 + sum(_size(part, known) for part in each))
    return known[id(node)]


def read_entries(path: Path, report: Report = lambda *_: None, copy: Path | None = None) -> list[Entry]:
    """Read a YAML list of mappings, or its ``copy``, if it exists. Anything else in it is reported."""
    tree = compose(path, report, copy)
    if tree is None:
        return []
    if not isinstance(tree, yaml.SequenceNode):
        report((path, 1, 0), "not a list of entries", "start each entry with `- `, as PyTorch's own file does")
        return []
    lines = (copy or path).read_text(encoding="utf-8", errors="replace").split("\n")
    return list(_entries(path, tree, lines, report))


def _entries(path: Path, tree: yaml.SequenceNode, lines: Sequence[str], report: Report) -> Iterator[Entry]:
    for node in tree.value:
        if isinstance(node, yaml.MappingNode):
            if entry := _entry(path, node, report):
                yield replace(entry, lines=lines[node.start_mark.line : node.end_mark.line + 1])
        else:
            what = "this entry is not a mapping"
            key = "name" if path.name == DERIVATIVES else "func"
            report(place_of(path, node), what, f"write `- {key}: <schema>` and keys below it")


def _entry(path: Path, node: yaml.MappingNode, report: Report) -> Entry | None:
    places: dict[str, Place] = {}
    values: dict[str, Place] = {}
    for key, value in node.value:
        name, place = key_text(key), place_of(path, key)
        if name in places:
            report(place, f"duplicate key `{name}`", "delete one; only the last would be used")
        places.setdefault(name, place)
        values[name] = place_of(path, value)
    loader = yaml.SafeLoader("")
    try:
        loader.flatten_mapping(node)
        fields = {key_text(key): loader.construct_object(value, deep=True) for key, value in node.value}
    except Exception as error:  # invalid numbers and dates raise arbitrary errors
        mark = getattr(error, "problem_mark", None) or node.start_mark
        what = f"YAML with invalid values: {getattr(error, 'problem', None) or error}"
        report((path, mark.line + 1, mark.column + 1), what, "write plain keys and values, as PyTorch's own file")
        return None
    written = ""
    for key in ("func", "name"):
        if isinstance(fields.get(key), str):
            written, fields[key] = fields[key], respelled(fields[key])
    # Merged keys have the place of the mapping that they come from.
    merge = places.get("<<", place_of(path, node))
    return Entry(
        path,
        node.start_mark.line + 1,
        fields,
        {name: places.get(name, merge) for name in fields},
        {name: values.get(name, merge) for name in fields},
        written,
    )


def key_text(key: yaml.Node) -> str:
    """Return a key as it is written; YAML would parse `on`, for example, as `True`."""
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "(no text)"


def place_of(path: Path, node: yaml.Node) -> Place:
    """Return where a node of the file ``path`` starts."""
    return path, node.start_mark.line + 1, node.start_mark.column + 1


def fields_of(text: str) -> dict[str, Any]:
    """Return the values of the entry with this text."""
    (fields,) = yaml.load(text, Loader)
    return dict(fields)


def texts_of_entries(path: Path) -> dict[str, str]:
    """Return the text of each entry in a file of PyTorch's, by operator. Parsing all of them would take seconds."""
    return split_entries(path.read_text(encoding="utf-8"))


def split_entries(text: str) -> dict[str, str]:
    """Return the text of each entry in ``text``, the content of a file of PyTorch's, by operator."""
    parts = re.split(r"^(?=- (?:func|name): )", text, flags=re.M)[1:]
    return {operator_of(part): part for part in parts}


def operator_of(text: str) -> str:
    """Return the operator of the entry with this text."""
    return text.partition(": ")[2].partition("(")[0].strip(" '\"")


def lines_of_operators(path: Path) -> dict[str, int]:
    """Return the line of each operator in a native_functions.yaml or derivatives.yaml. The file need not exist, nor be
    valid YAML.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    entries = ((re.match(r"\s*- (?:func|name):\s*['\"]?([\w.]+)\(", line), n) for n, line in enumerate(lines, 1))
    return {entry[1]: number for entry, number in entries if entry}


def places_of_operators(path: Path) -> dict[str, str]:
    """Return ``file:line`` of each operator, as ``lines_of_operators`` finds it."""
    return {name: f"{path}:{line}" for name, line in lines_of_operators(path).items()}


@dataclass(frozen=True)
class _Misplaced:
    """A line, counted from 0, its indentation, and the nearest indentation of its siblings: one, or two."""

    line: int
    indent: int
    beside: str


def _misplaced(text: str) -> _Misplaced | None:
    """Return the first entry or key with an indentation of its own that does not begin a list or a mapping.

    YAML parsers report a colon in that line instead, or a line below it.
    """
    entries: set[int] = set()
    keys: set[int] = set()
    is_open = True
    for number, line in enumerate(text.splitlines()):
        if not (match := _BEGIN.match(line)):
            continue
        indent = len(match["indent"])
        beside = entries if match["dash"] else keys
        if beside and indent not in beside and not is_open:
            nearest = min(abs(each - indent) for each in beside)
            return _Misplaced(number, indent, " or ".join(str(n) for n in sorted(beside) if abs(n - indent) == nearest))
        beside.add(indent)
        entries = {each for each in entries if each <= indent}
        keys = {each for each in keys if each <= indent}
        if match["dash"]:
            keys.add(match.end("dash"))
        is_open = not match["rest"].partition(" #")[0].strip()
    return None
