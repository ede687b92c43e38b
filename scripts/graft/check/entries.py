"""The entries of a YAML list, with the places of keys and values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from torchgen.yaml_utils import YamlLoader

from .finding import Findings

Place = tuple[Path, int, int]


@dataclass(frozen=True)
class Entry:
    """One entry.

    Args:
        file: the YAML file.
        line: its first line.
        fields: as torchgen's loader returns them.
        places: the place of each key.
        values: the place of each value.
    """

    file: Path
    line: int
    fields: dict[str, Any]
    places: dict[str, Place]
    values: dict[str, Place]

    @property
    def operator(self) -> str:
        """The operator's name with its overload: the text before the first parenthesis, if that is a name."""
        schema = self.fields.get("func", self.fields.get("name", ""))
        return str(schema).partition("(")[0].strip()

    def place(self, key: str) -> Place:
        """Return the place of ``key``, or of the entry if it has no such key."""
        return self.places.get(key, (self.file, self.line, 0))

    def value(self, key: str, offset: int = 0) -> Place:
        """Return the place of the value of ``key``, shifted by ``offset`` characters."""
        file, line, column = self.values[key]
        return file, line, column + offset


def compose(path: Path, findings: Findings) -> yaml.Node | None:
    """Return the syntax tree of a YAML file, or None if it does not exist. Invalid YAML is reported."""
    if not path.is_file() or path in findings.unreadable:
        return None
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), YamlLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (path, mark.line + 1, mark.column + 1) if mark else (path, 1, 0)
        has_tab = re.match(r" *\t", [*path.read_text(encoding="utf-8").splitlines(), ""][place[1] - 1])
        todo = "indent with spaces" if has_tab else "quote the text, or fix the indentation"
        findings.add(place, f"not YAML: {error.problem}", todo)
    except yaml.YAMLError as error:
        findings.add((path, 1, 0), f"not YAML: {error}", "delete that character")
    return None


def read_entries(path: Path, findings: Findings) -> list[Entry]:
    """Read a YAML list of mappings. Anything else is reported."""
    tree = compose(path, findings)
    if tree is None:
        return []
    if not isinstance(tree, yaml.SequenceNode):
        findings.add((path, 1, 0), "not a list of entries", "start each entry with `- `, as PyTorch's own file does")
        return []
    entries = []
    for node in tree.value:
        if isinstance(node, yaml.MappingNode):
            entries.append(_entry(path, node, findings))
        else:
            findings.add(
                _place(path, node), "this entry is not a mapping", "write `- func: name(...) -> ...` and keys below it"
            )
    return [entry for entry in entries if entry]


def _entry(path: Path, node: yaml.MappingNode, findings: Findings) -> Entry | None:
    places: dict[str, Place] = {}
    values: dict[str, Place] = {}
    for key, value in node.value:
        name, place = text_of(key), _place(path, key)
        if name in places:
            findings.add(place, f"duplicate key `{name}`", "delete one; only the last would be used")
        places.setdefault(name, place)
        values[name] = _place(path, value)
    loader = yaml.SafeLoader("")
    try:
        loader.flatten_mapping(node)
        fields = {text_of(key): loader.construct_object(value, deep=True) for key, value in node.value}
    except Exception as error:  # invalid numbers and dates raise arbitrary errors
        mark = getattr(error, "problem_mark", None) or node.start_mark
        what = f"YAML with invalid values: {getattr(error, 'problem', None) or error}"
        findings.add((path, mark.line + 1, mark.column + 1), what, "write plain keys and values, as PyTorch's own file")
        return None
    # Merged keys have the place of the mapping that they come from.
    merge = places.get("<<", _place(path, node))
    return Entry(
        path,
        node.start_mark.line + 1,
        fields,
        {name: places.get(name, merge) for name in fields},
        {name: values.get(name, merge) for name in fields},
    )


def text_of(key: yaml.Node) -> str:
    """Return a key as text: `on`, for example, is parsed as `True`."""
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "(no text)"


def _place(path: Path, node: yaml.Node) -> Place:
    return path, node.start_mark.line + 1, node.start_mark.column + 1
