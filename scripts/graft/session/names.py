"""Publish the names of loads in torch: as public functions, and in its lists of operators."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..deliver.shipped import publish
from ..inputs.spelling import python_names
from .missing import explain

_ADDED = "torch._added_operators"


def of_graft() -> frozenset[str]:
    """Return the operators that Graft has added to this torch: in its wheel, its tree, thin wheels or loads."""
    return frozenset(getattr(_added(), "OPERATORS", ()))


def lists_without_loads() -> dict[str, Any]:
    """Copy the lists of ``torch._added_operators``; empty if this torch has none. Call it before the first load."""
    return {name: _copy(value) for name, value in vars(_added()).items() if name.isupper()} if _added() else {}


def merge(first: Mapping[str, Any], loads: Iterable[tuple[Path, Collection[str]]]) -> None:
    """Fill ``torch._added_operators`` with ``first``, then with the lists of each of ``loads``: the folder of its
    build, and the operators to leave out. The lists stay the same objects: texts that extend modules refer to them.
    """
    if shared := _added():
        for name, there in vars(shared).items():
            if name.isupper():
                there.clear()
                given = first.get(name, type(there)())
                there.extend(given) if isinstance(there, list) else there.update(given)
    for built, taken in loads:
        publish.merge(_added_by(built, taken))


def publish_names(note: Mapping[str, Any], built: Path, taken: Collection[str], before: Mapping[Any, Any]) -> None:
    """Give the functions and named tuples of a load their public names, but for the operators ``taken``. ``before`` is
    an earlier ``publish.bound``.
    """
    bound = publish.publish(note, _added_by(built, taken), before)
    publish.tell_torchscript({key: value for key, value in bound.items() if before.get(key) is not value})


def remove_names(names: Iterable[str], why: str, reasons: dict[str, str]) -> None:
    """Remove public functions that are no longer bound. Add ``why`` to ``reasons``, for errors of ``torch.name``."""
    import torch

    removed = []
    for name in names:
        is_bound = isinstance(vars(torch).get(name), types.BuiltinFunctionType)
        if is_bound and not hasattr(torch._C._VariableFunctions, name):
            del vars(torch)[name]
            if name in torch.__all__:
                torch.__all__.remove(name)
            removed.append(name)
    explain_gone(dict.fromkeys(removed, why), reasons)


def explain_gone(new: Mapping[str, str], reasons: dict[str, str]) -> None:
    """Add the reasons why operators are gone to ``reasons``, which errors of ``torch.name`` quote."""
    import torch

    if new and not reasons:
        explain(torch, _reason_in(reasons))
    reasons.update(new)


def _reason_in(reasons: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: reasons.get(name, "")


def _added() -> Any:
    """Return ``torch._added_operators``, or None."""
    if _ADDED not in sys.modules and importlib.util.find_spec(_ADDED):
        importlib.import_module(_ADDED)
    return sys.modules.get(_ADDED)


def _added_by(built: Path, taken: Collection[str]) -> Any:
    """Return the lists of a build, without the operators ``taken``."""
    added = publish.module(_ADDED, str(built / "_added_operators.py"))
    in_python = python_names(taken)
    for value in [value for name, value in vars(added).items() if taken and name.isupper()]:
        for each in list(value):
            if each in taken or ("::" not in each and each.rpartition(".")[2] in in_python):
                value.pop(each) if isinstance(value, dict) else value.remove(each)
    return added


def _copy(value: Any) -> Any:
    return type(value)(value)
