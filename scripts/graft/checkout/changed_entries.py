"""Write the differences between two versions of PyTorch's kernels and YAML entries as entries of a native folder."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import yaml

from ..inputs.entries import REPLACE, fields_of, kernels_of, operator_of, split_entries
from ..inputs.merge import MARK

_DELEGATE = re.compile(r"^\s+structured_delegate: *(\S+)", re.M)

# Two tables by operator: the fields of an entry that replaces PyTorch's, or None for a new one; and what a native
# folder cannot change.
Entries = dict[str, dict[str, Any] | None]
Changed = tuple[Entries, dict[str, str]]


def changed_entries(before: str, after: str, affected: Collection[str]) -> Changed:
    """Return the entries of native_functions.yaml that are new, or whose kernels have other names or are in
    ``affected``.
    """
    theirs, ours = (split_entries(text) for text in (before, after))
    left = dict.fromkeys(theirs.keys() - ours.keys(), "it")
    # Parse only these: parsing all 2,500 entries takes seconds.
    read = {name for name, text in ours.items() if text != theirs.get(name) or _names_one(name, text, affected)}
    structured = {name: match[1] for name in read if (match := _DELEGATE.search(ours[name]))}
    fields_of_ours = {name: fields_of(ours[name]) for name in {*read, *structured.values()} & ours.keys()}
    # The function of a structured operator that checks its arguments is named after its functional variant.
    affected = {*affected} | {
        kernel
        for name, delegate in structured.items()
        if name.replace(".", "_") in affected and delegate in fields_of_ours
        for key, kernel in kernels_of(fields_of_ours[delegate]).items()
        if key in ("CPU", "CUDA")
    }
    found: Entries = {}
    for name in (each for each in ours if each in fields_of_ours):
        if name not in theirs:
            found[name] = None
            continue
        fields, old = fields_of_ours[name], fields_of(theirs[name])
        others = sorted(key for key in {*fields, *old} - {"dispatch"} if fields.get(key) != old.get(key))
        if gone := kernels_of(old).keys() - kernels_of(fields).keys():
            others.append(f"kernels for {', '.join(sorted(gone))}")
        if others:
            why = "; give another schema an overload name of its own" if "func" in others else ""
            left[name] = f"its {', '.join(others)}{why}"
        kernels = _changed_kernels(kernels_of(fields), kernels_of(old), affected)
        is_changed = not {"dispatch", "structured_delegate"} & fields.keys() and composite_name(name) in affected
        if "func" not in others and (kernels or is_changed):
            found[name] = _replacing({"func": fields["func"], **({"dispatch": kernels} if kernels else {})})
    return found, left


def changed_formulas(before: str, after: str, operators: Collection[str]) -> Changed:
    """Return the entries of derivatives.yaml with new or changed formulas; for ``operators``, which PyTorch has, only
    the changed formulas.
    """
    theirs, ours = (split_entries(text) for text in (before, after))
    found: Entries = {}
    left = dict.fromkeys(sorted(theirs.keys() - ours.keys()), "its formulas")
    for name in (each for each, text in ours.items() if text != theirs.get(each)):
        fields, old = fields_of(ours[name]), fields_of(theirs[name]) if name in theirs else {}
        changed = {key: formula for key, formula in fields.items() if old.get(key) != formula}
        if changed and name in operators:
            found[name] = _replacing({"name": fields["name"], **changed})
        elif name not in theirs:
            found[name] = None
        if gone := sorted(old.keys() - fields.keys()):
            left[name] = f"its formulas for {', '.join(gone)}"
    return found, left


def text_of_entries(after: str, found: Entries) -> str:
    """Return the text of a folder's file with the entries ``found`` of the text ``after``."""
    replacing = [yaml.safe_dump([fields], sort_keys=False, width=10**6) for fields in found.values() if fields]
    return "\n".join([*replacing, *added_entries(after, [name for name, fields in found.items() if not fields])])


def _names_one(name: str, text: str, affected: Collection[str]) -> bool:
    """Return whether the text of an entry has the name of an affected function, or its operator's kernel has that
    name.
    """
    names = {name.replace(".", "_"), composite_name(name), *re.findall(r"\w+", text)}
    return not names.isdisjoint(affected)


def added_entries(text: str, names: Collection[str]) -> list[str]:
    """Return the texts of the entries called ``names``; in a fork's file, with the comments before them."""
    head, *parts = re.split(r"^(?=- )", text.partition(MARK)[2] or text, flags=re.M)
    found = [part for part in parts if operator_of(part) in names]
    if MARK in text:  # entries that replace others leave blank lines there
        return [re.sub(r"\n{3,}", "\n\n", "".join([head, *found]).rstrip() + "\n")] if found else []
    return [f"{part.rstrip()}\n" for part in found]


def _changed_kernels(ours: dict[str, str], theirs: dict[str, str], affected: set[str]) -> dict[str, str]:
    """Return the kernels, by dispatch key, that are not ``theirs``, or are in ``affected``."""
    return {
        key: kernel
        for key, kernel in ours.items()
        if kernel != theirs.get(key) or kernel.rpartition("::")[2] in affected
    }


def composite_name(operator: str) -> str:
    """Return the name of the kernel of a composite operator, whose entry names none."""
    name, _, overload = operator.partition(".")
    return f"{name}_out" if overload.split("_")[-1] == "out" else name


def _replacing(fields: dict[str, Any]) -> dict[str, Any]:
    """Mark the fields of an entry as replacing PyTorch's."""
    return {**fields, REPLACE: True}
