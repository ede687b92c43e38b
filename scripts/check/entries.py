"""The entries of a YAML list, each with the places of its keys and values."""

from __future__ import annotations

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
        fields: as torchgen's loader gives them.
        places: of each key.
        values: the place of each value.
    """

    file: Path
    fields: dict[str, Any]
    places: dict[str, Place]
    values: dict[str, Place]

    @property
    def line(self) -> int:
        """Where the entry begins."""
        return min(line for _, line, _ in self.places.values())

    def place(self, key: str) -> Place:
        """The place of ``key``, or of the entry where it has no such key."""
        return self.places.get(key, (self.file, self.line, 0))

    def value(self, key: str, offset: int = 0) -> Place:
        """The place of ``key``'s value, ``offset`` characters into it."""
        file, line, column = self.values[key]
        return file, line, column + offset


def read_entries(path: Path, findings: Findings) -> list[Entry]:
    """Read a YAML list of mappings; what is no such thing is a finding."""
    if not path.is_file():
        return []
    text = path.read_text()
    try:
        tree = yaml.compose(text, YamlLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (path, mark.line + 1, mark.column + 1) if mark else (path, 1, 0)
        findings.add(place, f"not YAML: {error.problem}", "quote the text, or mend the indentation")
        return []
    except yaml.YAMLError as error:
        findings.add((path, 1, 0), f"not YAML: {error}", "save it as UTF-8 text")
        return []
    if tree is None:
        return []
    if not isinstance(tree, yaml.SequenceNode):
        findings.add((path, 1, 0), "no list of entries", "start each entry with `- `, as PyTorch's own file does")
        return []
    entries = []
    for node in tree.value:
        if isinstance(node, yaml.MappingNode):
            entries.append(_entry(path, node, findings))
        else:
            place = (path, node.start_mark.line + 1, node.start_mark.column + 1)
            findings.add(place, "this entry is no mapping", "write `- func: name(...) -> ...` and keys below it")
    return entries


def _entry(path: Path, node: yaml.MappingNode, findings: Findings) -> Entry:
    places: dict[str, Place] = {}
    values: dict[str, Place] = {}
    for key, value in node.value:
        name = str(key.value)
        place = (path, key.start_mark.line + 1, key.start_mark.column + 1)
        if name in places:
            findings.add(place, f"the key `{name}` is there twice", "leave one out: only the last would count")
        places.setdefault(name, place)
        values[name] = (path, value.start_mark.line + 1, value.start_mark.column + 1)
    fields = yaml.SafeLoader("").construct_mapping(node, deep=True)
    return Entry(path, {str(key): value for key, value in fields.items()}, places, values)
