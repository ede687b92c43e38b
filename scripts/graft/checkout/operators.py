"""Find the entries of operators and formulas that changed, and refuse those that the torch cannot have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import yaml

from ..core.errors import UsageError
from ..fork.apply import YAML_FILES
from ..inputs.entries import fields_of, kernels_of, split_entries
from ..inputs.native import DERIVATIVES, FUNCTIONS
from .answer import Question
from .changed_entries import Entries, changed_entries, changed_formulas, composite_name

_FUNCTIONS, _DERIVATIVES = YAML_FILES[FUNCTIONS], YAML_FILES[DERIVATIVES]


@dataclass(frozen=True)
class Operators:
    """The entries that changed, as far as they can be built.

    Args:
        question: the two versions, and the torch.
        entries: by operator, the fields of an entry that replaces PyTorch's, or None for a new one.
        formulas: the same for derivatives.yaml.
        refused: why an operator is left out, with file and line, by operator.
        left: why a change of an entry is left out, by subject.
    """

    question: Question
    entries: Entries = field(default_factory=dict)
    formulas: Entries = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of all entries of native_functions.yaml, by operator."""
        return self.question.entries(_FUNCTIONS)

    @cached_property
    def kernels(self) -> set[str]:
        """The names of the functions that the entries need."""
        found: set[str] = set()
        for name, replacing in self.entries.items():
            whole = fields_of(self.texts[name])
            found |= _kernel_names(name, replacing or whole)
            # The functions of structured operators that check arguments are named after the functional variants.
            found |= {name.replace(".", "_")} if "structured_delegate" in whole else set()
            found |= {each.replace(".", "_") for each in self._delegating(name)} if "structured" in whole else set()
        return found

    @cached_property
    def refused_kernels(self) -> set[str]:
        """The names of the functions that only refused operators need."""
        names = (_kernel_names(each, fields_of(self.texts[each])) | {each.replace(".", "_")} for each in self.refused)
        return set[str]().union(*names) - self.kernels

    def are_naming(self, function: str) -> bool:
        """Return whether an entry of native_functions.yaml names a function."""
        return any(re.search(rf"\b{function}\b", text) for text in self.texts.values())

    def without(self, functions: Collection[str]) -> Operators:
        """Return these without kernels in ``functions``, which cannot be compiled, and without entries of no others."""
        entries, formulas, gone = {**self.entries}, {**self.formulas}, list[str]()
        for name, fields in self.entries.items() if functions else ():
            whole = fields or fields_of(self.texts[name])
            if _kernel_names(name, whole).isdisjoint(functions):
                continue
            rest = {key: each for key, each in kernels_of(whole).items() if each.rpartition("::")[2] not in functions}
            if fields and rest:
                entries[name] = {**fields, "dispatch": rest}
            else:
                gone += [name, *(each for each in self._delegating(name) if each in entries)]
        for name in gone:
            if entries.pop(name, {}) is None:
                formulas.pop(name, None)  # the operator was new, and is left out
        left = {f"{_FUNCTIONS}: {name}": "it has no kernel that is built" for name in gone}
        return replace(self, entries=entries, formulas=formulas, left=self.left | left)

    def _delegating(self, name: str) -> list[str]:
        pattern = re.compile(rf"structured_delegate: *{re.escape(name)}\s")
        return [each for each, text in self.texts.items() if pattern.search(text)]


def read_operators(question: Question, affected: Collection[str]) -> Operators:
    """Return the entries that changed, or have a kernel in ``affected``, without changes that a release cannot have."""
    functions, formulas = ((question.before(name), question.after(name)) for name in (_FUNCTIONS, _DERIVATIVES))
    _require_readable(question, _FUNCTIONS, functions[0])
    _require_readable(question, _DERIVATIVES, formulas[0])
    found, theirs = Operators(question), split_entries(functions[0])
    if affected or functions[0] != functions[1]:
        found = _possible(question, *changed_entries(*functions, affected), theirs)
    if formulas[0] == formulas[1]:
        return found
    changed, kept = changed_formulas(*formulas, theirs.keys())
    left = {f"{_DERIVATIVES}: {name}": f"a release keeps {what}" for name, what in kept.items()}
    there, taken = question.installed_entries, Entries()
    for name in (each for each in changed if each not in found.refused):
        if there and changed[name] is not None and name not in there:
            left[f"{_DERIVATIVES}: {name}"] = "the torch that is built on lacks this operator"
        else:
            taken[name] = changed[name]
    return replace(found, formulas=taken, left=found.left | left)


def _require_readable(question: Question, file: str, before: str) -> None:
    """Check that the changed entries of a file are valid YAML."""
    known = set(split_entries(before).values())
    for text in question.entries(file).values():
        try:
            if text not in known:
                fields_of(text)
        except (yaml.YAMLError, ValueError, TypeError) as error:
            mark = getattr(error, "problem_mark", None)
            after = question.after(file)
            first = after[: after.index(text)].count("\n") + 1
            line = first + (min(mark.line, text.rstrip().count("\n")) if mark else 0)
            why = getattr(error, "problem", None) or "an entry here does not begin with `- func: ` or `- name: `"
            raise UsageError(f"{question.tree / file}:{line}: {why}", todo="correct it; nothing was built") from error


def _possible(question: Question, entries: Entries, kept: Mapping[str, str], before: Mapping[str, str]) -> Operators:
    """Return those of ``entries`` that the torch can have. A release keeps ``kept``; ``before`` has the old entries."""
    ours, after = question.entries(_FUNCTIONS), question.after(_FUNCTIONS)
    refused, left = dict[str, str](), dict[str, str]()
    for name in sorted({*entries, *kept} & ours.keys()):
        theirs = question.installed_entries.get(name) if question.site else before.get(name)
        place = f"{question.tree / _FUNCTIONS}:{after[: after.index(ours[name])].count(chr(10)) + 1}: {name}"
        if theirs is None and name in before:
            refused[name] = f"{place}: the torch that is built on lacks this operator, which upstream added since"
        elif theirs is not None and _schema(theirs) != _schema(ours[name]):
            refused[name] = f"{place}: the torch that is built on has another schema: {_schema(theirs)}"
        elif theirs is not None and entries.get(name, {}) is None:
            refused[name] = f"{place}: the torch that is built on has this operator already"
        elif name in kept:
            left[f"{_FUNCTIONS}: {name}"] = f"a release keeps {kept[name]}"
    left |= {f"{_FUNCTIONS}: {name}": "a release keeps it" for name in kept.keys() - ours.keys()}
    taken = {name: fields for name, fields in entries.items() if name not in refused}
    if not question.has_cuda:
        taken = {name: _without_cuda(fields) for name, fields in taken.items()}
    return Operators(question, taken, refused=refused, left=left)


def _schema(entry: str) -> str:
    return " ".join(str(fields_of(entry).get("func")).split())


def _kernel_names(operator: str, fields: Mapping[str, Any]) -> set[str]:
    kernels = kernels_of(fields)
    return {kernel.rpartition("::")[2] for kernel in kernels.values()} or {composite_name(operator)}


def _without_cuda(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of an entry that replaces PyTorch's without kernels for CUDA, if others are left."""
    kernels = {key: kernel for key, kernel in kernels_of(fields or {}).items() if "CUDA" not in key}
    return {**fields, "dispatch": kernels} if fields and kernels else fields
