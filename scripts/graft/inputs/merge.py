"""Merge the YAML of native folders with PyTorch's: append their entries, or replace PyTorch's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from textwrap import dedent

import yaml

from ..core.errors import BuildError
from ..core.files import write_if_changed
from .entries import Entry, FormulaError, Loader, Place, Report, fields_of, split_entries
from .native import DERIVATIVES, FUNCTIONS, NativeFolder, NativeFolders

PACKAGED = {FUNCTIONS: "torchgen/packaged/ATen/native", DERIVATIVES: "torchgen/packaged/autograd"}
MARK = "\n# Added by Graft, from the native folder that this torch is built with.\n"


def merge_with_base(natives: NativeFolders, tree: Path, target: Path) -> dict[Path, str]:
    """Return the text of both YAML files: the base's in ``tree``, followed by the declared operators, if there are any,
    and by the lists of ``natives``. Write both
    files below ``target``, at their paths in a wheel; unchanged files keep their modification times.
    """
    merged = {}
    for file, folder in PACKAGED.items():
        name = f"{folder}/{file}"
        added = "\n".join(text for native in natives.folders if (text := added_list(native, file)))
        if natives.declared and file == FUNCTIONS:
            added = f"{natives.declared.read_text(encoding='utf-8')}\n{added}"
        base = (tree / name).read_text(encoding="utf-8")
        merged[file] = f"{base}{MARK}{added}" if added else base
        write_if_changed(target / name, merged[file])
    return merged


def read_added(native: NativeFolder, file: Path, report: Report, *, of_any: bool = False) -> list[Entry]:
    """Read a YAML list, if the folder has it. Report errors, and a form that cannot follow PyTorch's list. With
    ``of_any``, return also the entries for other releases.
    """
    faults: list[Place] = []

    def note(place: Place, what: str, todo: str) -> None:
        faults.append(place)
        report(place, what, todo)

    entries = native.entries(file, note, of_any=of_any)
    if entries and not faults and not _follows(dedent(native.text(file))):
        todo = "start each entry with `- ` in the first column, without `---`, `...` and `%`"
        report((native.place(file), 1, 0), "the list is in brackets, or a document of its own", todo)
    return entries


def with_replacing(text: str, entries: Iterable[Entry]) -> str:
    """Return ``text``, a YAML list of PyTorch's, with ``entries`` in place of the entries that they replace.

    An entry for an operator that the list does not have is appended.
    """
    parts = split_entries(text)
    head = text[: len(text) - sum(map(len, parts.values()))]
    for entry in entries:
        theirs = parts.get(entry.operator, "")
        # Comments after an entry belong to the next one.
        behind = re.search(r"(?:^[ \t]*(?:#.*)?\n)*\Z", theirs, re.M) if theirs else None
        try:
            fields = entry.in_place_of(fields_of(theirs) if theirs else {}).fields
        except FormulaError as error:
            raise BuildError(f"{entry.file}:{entry.line}: {error}") from error
        new = yaml.safe_dump([fields], sort_keys=False, width=sys.maxsize)
        parts[entry.operator] = new + (behind[0] if behind else "\n")
    return head + "".join(parts.values())


def added_list(native: NativeFolder, file: Path) -> str:
    """Return the text of a folder's YAML list in a form that can follow another list; empty if it adds no entry.

    Schemas have torchgen's spelling. Entries that replace PyTorch's own become blank lines.

    Raises:
        BuildError: it is not a YAML list of entries, or its form cannot follow the base's.
    """
    faults: list[str] = []

    def report(place: Place, what: str, todo: str) -> None:
        faults.append(f"{':'.join(str(each) for each in place if each)}: {what}; {todo}")

    entries = read_added(native, file, report, of_any=True)
    lines = dedent(native.text(file)).split("\n") if entries else []
    key = "func" if file == FUNCTIONS else "name"
    for entry, following in zip_longest(entries, entries[1:]):
        if key not in entry.fields:
            report(
                (entry.file, entry.line, 0),
                f"an entry needs the key `{key}`",
                f"start it with `- {key}: ` and a schema",
            )
        elif entry.written != entry.schema and entry.written not in native.text(file):
            report(entry.value(key), "this schema is in several lines, or escaped", f"write `{entry.schema}`")
        elif entry.is_replacing:
            end = following.line - 1 if following else len(lines)
            lines[entry.line - 1 : end] = [""] * (end - entry.line + 1)
        else:
            line = entry.value(key)[1] - 1
            lines[line] = lines[line].replace(entry.written, entry.schema)
    if faults:
        raise BuildError("\n".join(faults))
    text = "\n".join(lines) if any(not entry.is_replacing for entry in entries) else ""
    return text if text.endswith("\n") or not text else f"{text}\n"


def _follows(text: str) -> bool:
    """Return whether YAML reads a list, ``text`` and another list as one list."""
    probe = {"name": "probe"}
    try:
        between = yaml.load(f"- name: probe\n{MARK}{text}\n- name: probe\n", Loader)
    except yaml.YAMLError:
        return False
    return bool(between == [probe, *yaml.load(text, Loader), probe])
