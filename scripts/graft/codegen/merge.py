"""Merge the native folder's YAML with the base's."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..core.errors import OperatorError
from ..core.files import write_if_changed
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolder

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

PACKAGED = {FUNCTIONS: "torchgen/packaged/ATen/native", DERIVATIVES: "torchgen/packaged/autograd"}
MARK = "\n# Added by Graft, from the native folder that this torch is built with.\n"


@dataclass(frozen=True)
class MergedFile:
    """A YAML file of the base followed by the native folder's entries.

    Args:
        path: the merged file.
        source: the native folder's file.
        offset: the number of lines before the native folder's first line.
    """

    path: Path
    source: Path
    offset: int


def merge(native: NativeFolder, tree: Path, target: Path) -> list[MergedFile]:
    """Write both merged YAML files below ``target``, at their paths in the wheel.

    Args:
        native: the native folder.
        tree: the laid-out base.
        target: the output folder; unchanged files keep their modification times.

    Raises:
        OperatorError: a file of the native folder is not a YAML list of entries.
    """
    merged = []
    for file, folder in PACKAGED.items():
        name = f"{folder}/{file}"
        source = native.path / file
        base = (tree / name).read_text(encoding="utf-8")
        addition = entries_text(source) if source.is_file() else ""
        write_if_changed(target / name, f"{base}{MARK}{addition}" if addition else base)
        merged.append(MergedFile(target / name, source, f"{base}{MARK}".count("\n")))
    return merged


def entries_text(path: Path) -> str:
    """Return the text of a YAML list in a form that can follow another list; empty if it has no entry.

    Raises:
        OperatorError: it is not a YAML list, or its form cannot follow the base's.
    """
    text = path.read_text(encoding="utf-8")
    try:
        entries = yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise OperatorError(f"{where}: not YAML: {error.problem}", cause=error.context or "") from error
    except yaml.YAMLError as error:
        raise OperatorError(f"{path}: not YAML: {error}") from error
    if entries is None:
        return ""
    if not isinstance(entries, list):
        raise OperatorError(
            f"{path}:1: expected a list of entries, but got {type(entries).__name__}",
            todo="start each entry with `- `, as PyTorch's own file does",
        )
    require_key(path, text, "func" if path.name == FUNCTIONS.name else "name")
    block = textwrap.dedent(text)
    probe = "- name: probe\n"
    try:
        follows = yaml.load(f"{probe}{MARK}{block}", Loader)
    except yaml.YAMLError:
        follows = None
    if follows != [{"name": "probe"}, *entries]:
        raise OperatorError(
            f"{path}:1: the list cannot follow PyTorch's own",
            cause="it is written in brackets, or is a separate document",
            todo="start each entry with `- ` in the first column, without `---`",
        )
    return block if block.endswith("\n") else f"{block}\n"


def require_key(path: Path, text: str, key: str) -> None:
    """Check that each entry of a YAML list is a mapping with ``key``.

    Raises:
        OperatorError: gives the line of every entry that is not.
    """
    faults = []
    tree = yaml.compose(text, Loader)
    for node in tree.value if tree else []:
        keys = [name.value for name, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        if key not in keys:
            given = f"it has {', '.join(map(str, keys))}" if keys else "it is not a mapping"
            faults.append(f"{path}:{node.start_mark.line + 1}: an entry needs the key `{key}`, but {given}")
    if faults:
        raise OperatorError("\n".join(faults), todo=f"start each entry with `- {key}: ` and a schema")
