"""Find the entries of operators and formulas that changed, and refuse those that the torch cannot have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from ..core.errors import UsageError
from ..fork.apply import YAML_FILES
from ..inputs.entries import fields_of, kernels_of, split_entries
from ..inputs.merge import PACKAGED
from ..inputs.native import DERIVATIVES, FUNCTIONS
from .answer import Answer, Question, text_of
from .changed_entries import changed_entries, changed_formulas, composite_name

_FUNCTIONS, _DERIVATIVES = YAML_FILES[FUNCTIONS], YAML_FILES[DERIVATIVES]


@dataclass
class Operators:
    """The entries that changed.

    Args:
        question: the two versions, and the torch.
        entries: by operator, the fields of an entry that replaces PyTorch's, or None for a new one.
        formulas: the same for derivatives.yaml.
        refused: the operators that are left out.
    """

    question: Question
    entries: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    formulas: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of all entries of native_functions.yaml, by operator."""
        return self.question.entries(_FUNCTIONS)

    @cached_property
    def there(self) -> dict[str, str]:
        """The texts of the entries that the torch has; none if the folder is for any."""
        return split_entries(text_of(self.question.installed(f"{PACKAGED[FUNCTIONS]}/{FUNCTIONS}")))

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
        names = (
            _kernel_names(name, fields_of(self.texts[name])) | {name.replace(".", "_")}
            for name in self.refused
            if name in self.texts
        )
        return set[str]().union(*names) - self.kernels

    def are_naming(self, function: str) -> bool:
        """Return whether an entry of native_functions.yaml names a function."""
        return any(re.search(rf"\b{function}\b", text) for text in self.texts.values())

    def leave(self, answer: Answer, functions: Collection[str]) -> None:
        """Remove kernels in ``functions``, which cannot be compiled, and entries without others. Note these entries."""
        gone: list[str] = []
        for name, fields in [*self.entries.items()] if functions else ():
            whole = fields or fields_of(self.texts[name])
            if _kernel_names(name, whole).isdisjoint(functions):
                continue
            rest = {key: each for key, each in kernels_of(whole).items() if each.rpartition("::")[2] not in functions}
            if fields and rest:
                self.entries[name] = {**fields, "dispatch": rest}
            else:
                gone += [name, *(each for each in self._delegating(name) if each in self.entries)]
        for name in gone:
            if self.entries.pop(name, {}) is None:
                self.formulas.pop(name, None)  # the operator was new, and is left out
            answer.left[f"{_FUNCTIONS}: {name}"] = "it has no kernel that is built"

    def _delegating(self, name: str) -> list[str]:
        pattern = re.compile(rf"structured_delegate: *{re.escape(name)}\s")
        return [each for each, text in self.texts.items() if pattern.search(text)]


def read_operators(answer: Answer, affected: Collection[str]) -> Operators:
    """Return the entries that changed, or have a kernel in ``affected``. Note changes that a release cannot have."""
    question, found = answer.question, Operators(answer.question)
    functions, formulas = ((question.before(name), question.after(name)) for name in (_FUNCTIONS, _DERIVATIVES))
    _require_readable(question, _FUNCTIONS, functions[0])
    _require_readable(question, _DERIVATIVES, formulas[0])
    if affected or functions[0] != functions[1]:
        found.entries, left = changed_entries(*functions, affected)
        _refuse(answer, found, left, split_entries(functions[0]))
        if not question.has_cuda:
            found.entries = {name: _without_cuda(fields) for name, fields in found.entries.items()}
    if formulas[0] != formulas[1]:
        found.formulas, left = changed_formulas(*formulas, split_entries(functions[0]).keys())
        answer.left |= {f"{_DERIVATIVES}: {name}": f"a release keeps {what}" for name, what in left.items()}
        found.formulas = {name: fields for name, fields in found.formulas.items() if _has_formula(answer, found, name)}
    answer.operators |= found.entries.keys() | found.formulas.keys()
    return found


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
            line = (
                after[: after.index(text)].count("\n") + 1 + (min(mark.line, text.rstrip().count("\n")) if mark else 0)
            )
            why = getattr(error, "problem", None) or "an entry here does not begin with `- func: ` or `- name: `"
            raise UsageError(f"{question.tree / file}:{line}: {why}", todo="correct it; nothing was built") from error


def _refuse(answer: Answer, found: Operators, left: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Remove entries of operators that the torch lacks or has otherwise. Note other changes that it cannot have."""
    question, ours = answer.question, found.texts
    after = question.after(_FUNCTIONS)
    for name in sorted({*found.entries, *left} & ours.keys()):
        theirs = found.there.get(name) if question.site else before.get(name)
        place = f"{question.tree / _FUNCTIONS}:{after[: after.index(ours[name])].count(chr(10)) + 1}: {name}"
        if theirs is None and name in before:
            answer.refused[name] = (
                f"{place}: the torch that is built on lacks this operator, which upstream added since"
            )
        elif theirs is not None and _schema(theirs) != _schema(ours[name]):
            answer.refused[name] = f"{place}: the torch that is built on has another schema: {_schema(theirs)}"
        elif theirs is not None and found.entries.get(name, {}) is None:
            answer.refused[name] = f"{place}: the torch that is built on has this operator already"
        elif name in left:
            answer.left[f"{_FUNCTIONS}: {name}"] = f"a release keeps {left[name]}"
    answer.left |= {f"{_FUNCTIONS}: {name}": "a release keeps it" for name in left.keys() - ours.keys()}
    found.refused = {*answer.refused}
    found.entries = {name: fields for name, fields in found.entries.items() if name not in answer.refused}


def _has_formula(answer: Answer, found: Operators, name: str) -> bool:
    """Return whether the torch can have a formula for an operator. If not, note why."""
    if name in answer.refused:
        return False
    if not found.there or found.formulas[name] is None or name in found.there:
        return True
    answer.left[f"{_DERIVATIVES}: {name}"] = "the torch that is built on lacks this operator"
    return False


def _schema(entry: str) -> str:
    return " ".join(str(fields_of(entry).get("func")).split())


def _kernel_names(operator: str, fields: Mapping[str, Any]) -> set[str]:
    kernels = kernels_of(fields)
    return {kernel.rpartition("::")[2] for kernel in kernels.values()} or {composite_name(operator)}


def _without_cuda(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of an entry that replaces PyTorch's without kernels for CUDA, if others are left."""
    kernels = {key: kernel for key, kernel in kernels_of(fields or {}).items() if "CUDA" not in key}
    return {**fields, "dispatch": kernels} if fields and kernels else fields
