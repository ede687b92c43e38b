"""Merge files: the YAML of native folders behind PyTorch's own, and several native folders into one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import dedent

import yaml

from ..core.errors import OperatorError
from ..core.files import write_if_changed
from .entries import Entry, Loader, Place, Report, fields_of, operator_of, read_entries
from .native import AUTOCAST, DERIVATIVES, FUNCTIONS, PYTHON, SAMPLES, YAML

PACKAGED = {FUNCTIONS: "torchgen/packaged/ATen/native", DERIVATIVES: "torchgen/packaged/autograd"}
MARK = "\n# Added by Graft, from the native folder that this torch is built with.\n"


class Merged:
    """The text of several files, one behind the other, and the map of its lines.

    Args:
        parts: each file with its text.
        marks: what stands before each but the first; the last also before those that follow.
    """

    def __init__(self, parts: Sequence[tuple[Path, str]], marks: Sequence[str] = ("\n",)) -> None:
        self.text = ""
        self._starts: list[tuple[int, Path]] = []
        for number, (source, text) in enumerate(parts):
            self.text += marks[min(number, len(marks)) - 1] if number else ""
            self._starts.append((self.text.count("\n"), source))
            self.text += text

    def place(self, line: int) -> tuple[Path, int]:
        """Return the file that a line of the text comes from, and its line there."""
        start, source = next(each for each in reversed(self._starts) if each[0] < max(line, 1))
        return source, line - start


def merge_with_base(natives: Sequence[Path], tree: Path, target: Path) -> dict[Path, Merged]:
    """Write both YAML files, with PyTorch's entries and those of ``natives``, at their paths in a wheel.

    Args:
        natives: the native folders.
        tree: the laid-out base.
        target: the folder of the wheel; unchanged files keep their modification times.

    Raises:
        OperatorError: lists each place that is not an entry.
    """
    merged = {}
    for file, folder in PACKAGED.items():
        name = f"{folder}/{file}"
        added = [(native / file, added_list(native / file)) for native in natives]
        base = (tree / name, (tree / name).read_text(encoding="utf-8"))
        merged[file] = Merged([base, *((path, text) for path, text in added if text)], (MARK, "\n"))
        write_if_changed(target / name, merged[file].text)
    return merged


def read_added(path: Path, report: Report) -> list[Entry]:
    """Read a YAML list of entries that can be between others, if the file exists. Anything else is reported."""
    faults: list[Place] = []

    def note(place: Place, what: str, todo: str) -> None:
        faults.append(place)
        report(place, what, todo)

    entries = read_entries(path, note)
    if entries and not faults and not _follows(dedent(path.read_text(encoding="utf-8"))):
        todo = "start each entry with `- ` in the first column, without `---`, `...` and `%`"
        report((path, 1, 0), "the list is in brackets, or a document of its own", todo)
    return entries


def with_replacing(text: str, entries: Iterable[Entry]) -> str:
    """Return the text of a list of PyTorch's own with ``entries`` in the place of those that they replace.

    An entry for an operator that has none comes at its end.
    """
    parts = re.split(r"^(?=- (?:func|name): )", text, flags=re.M)
    places = {operator_of(part): number for number, part in enumerate(parts)}
    for entry in entries:
        number = places.get(entry.operator, 0)
        theirs = fields_of(parts[number]) if number else {}
        # Comments behind an entry are those of the next.
        behind = re.search(r"(?:^[ \t]*(?:#.*)?\n)*\Z", parts[number], re.M) if number else None
        fields = entry.in_place_of(theirs).fields
        new = yaml.safe_dump([fields], sort_keys=False, width=sys.maxsize) + (behind[0] if behind else "\n")
        parts[number or len(parts) :] = [new, *(parts[number + 1 :] if number else [])]
    return "".join(parts)


def added_list(path: Path) -> str:
    """Return the text of a YAML list in a form that can follow another list; empty if it adds no entry.

    Entries that take the place of PyTorch's own are blank lines in it.

    Raises:
        OperatorError: it is not a YAML list of entries, or its form cannot follow the base's.
    """
    faults: list[str] = []

    def report(place: Place, what: str, todo: str) -> None:
        faults.append(f"{':'.join(str(each) for each in place if each)}: {what}; {todo}")

    entries = read_added(path, report)
    key = "func" if path.name == FUNCTIONS.name else "name"
    for entry in entries:
        if key not in entry.fields:
            report((path, entry.line, 0), f"an entry needs the key `{key}`", f"start it with `- {key}: ` and a schema")
        elif entry.written != entry.schema and entry.written not in path.read_text(encoding="utf-8"):
            report(entry.value(key), "this schema is in several lines, or escaped", f"write `{entry.schema}`")
    is_adding = any(not entry.is_replacing for entry in entries)
    text = _spelled(_without_replacing(dedent(path.read_text(encoding="utf-8")), entries), entries) if is_adding else ""
    if faults:
        raise OperatorError("\n".join(faults))
    return text if text.endswith("\n") or not text else f"{text}\n"


def _spelled(text: str, entries: Sequence[Entry]) -> str:
    """Return the text of a list with torchgen's spelling of schemas, in as many lines."""
    lines = text.split("\n")
    for entry in entries:
        if entry.written != entry.schema and not entry.is_replacing:
            _, line, _ = entry.value("func" if "func" in entry.fields else "name")
            lines[line - 1] = lines[line - 1].replace(entry.written, entry.schema)
    return "\n".join(lines)


def _without_replacing(text: str, entries: Sequence[Entry]) -> str:
    lines = text.split("\n")
    starts = [entry.line for entry in entries]
    for entry, end in zip(entries, [*starts[1:], len(lines) + 1], strict=True):
        if entry.is_replacing:
            lines[entry.line - 1 : end - 1] = [""] * (end - entry.line)
    return "\n".join(lines)


def _follows(text: str) -> bool:
    """Return whether lists with ``text`` between them are one list."""
    probe = {"name": "probe"}
    try:
        between = yaml.load(f"- name: probe\n{MARK}{text}\n- name: probe\n", Loader)
    except yaml.YAMLError:
        return False
    return bool(between == [probe, *yaml.load(text, Loader), probe])


def merge_folders(folders: Sequence[dict[Path, bytes]]) -> dict[Path, bytes]:
    """Return the files of one native folder that merges all of ``folders``.

    YAML lists and Python texts are concatenated. ``make check`` rejects two files of one name if they cannot be merged:
    kernels, headers, docstrings.
    """
    merged: dict[Path, bytes] = {}
    for name in sorted({name for folder in folders for name in folder}):
        texts = [folder[name] for folder in folders if name in folder]
        if name == AUTOCAST:
            merged[name] = _merge_policies(texts)
        elif name == SAMPLES:
            continue  # only tests read it, in each folder
        elif name in YAML or name.parts[0] == PYTHON.name:
            merged[name] = merge_texts(name, folders).text.encode("latin-1")
        else:
            merged[name] = texts[0]
    merged.setdefault(FUNCTIONS, b"")
    return merged


def merge_texts(name: Path, folders: Sequence[dict[Path, bytes]], origins: Sequence[Path] = ()) -> Merged:
    """Return the texts of the file ``name`` of all ``folders``, which are those at ``origins``."""
    parts = []
    for folder, origin in zip(folders, origins or [Path()] * len(folders), strict=True):
        if name in folder:
            # Whether texts are UTF-8 is checked later. The lists of two folders may have different indentation.
            text = folder[name].decode("latin-1")
            parts.append((origin / name, dedent(text) if name in YAML else text))
    return Merged(parts)


def _merge_policies(texts: list[bytes]) -> bytes:
    policies: dict[str, list[str]] = {}
    try:
        for text in texts:
            for policy, names in (yaml.safe_load(text) or {}).items():
                policies.setdefault(policy, []).extend(names)
    except (yaml.YAMLError, AttributeError, TypeError):
        return b"\n".join(texts)  # the check reports the error
    return yaml.safe_dump(policies).encode()
