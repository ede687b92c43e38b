"""Python signatures of the new operators in the form of stub files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from torchgen.api.python import PythonSignatureGroup, PythonSignatureNativeFunctionPair, signature
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction
from torchgen.packaged.autograd.gen_python_functions import group_overloads

from .bindings import belongs, new_names
from .operators import Operators
from .places import Place


@cache
def new_signature_groups(operators: Operators, place: Place) -> list[PythonSignatureGroup]:
    """Return the Python signatures at ``place`` of new operators. An out variant is part of its base's group."""
    names = new_names(operators, place)
    functions = [f for f in operators.bindable if f.func.name.name in names and belongs(f, place)]
    pairs = [signature_pair(f, place) for f in functions]
    groups: list[PythonSignatureGroup] = []
    for name in sorted(names, key=str):
        of_this_name = [pair for pair in pairs if pair.function.func.name.name == name]
        groups += (group for group in group_overloads(of_this_name) if operators.is_new(group.base))
    return groups


def signature_pair(f: NativeFunction, place: Place) -> PythonSignatureNativeFunctionPair:
    """Return ``f`` with its Python signature, in the types that stub files use."""
    with native_function_manager(f):
        return PythonSignatureNativeFunctionPair(signature(f, method=place.is_method, pyi=True), f)


def hints(groups: Iterable[PythonSignatureGroup]) -> dict[str, list[str]]:
    """Return the definitions of a stub file, by function name."""
    found: dict[str, list[str]] = {}
    for group in groups:
        vararg = group.signature.signature_str_pyi_vararg(skip_outputs=group.outplace is None)
        texts = [function_hint(group), *([_in_python(vararg)] if vararg else [])]
        found.setdefault(group.signature.name, []).extend(texts)
    return found


def function_hint(group: PythonSignatureGroup) -> str:
    """Return the definition of ``group`` for a stub file."""
    return _in_python(group.signature.signature_str_pyi(skip_outputs=group.outplace is None))


# ATen/core/Reduction.h
_REDUCTIONS = {"at::Reduction::None": "0", "at::Reduction::Mean": "1", "at::Reduction::Sum": "2"}


def _in_python(hint: str) -> str:
    """Return ``hint`` without the defaults that torchgen leaves in C++."""
    for cpp, python in _REDUCTIONS.items():
        hint = hint.replace(cpp, python)
    return re.sub(r"= \w+(::\w+)+", "= ...", hint)
