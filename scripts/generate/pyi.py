"""Type stubs of the new operators, inserted into the base's .pyi files where upstream's generator would put them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from torchgen.api.python import (
    PythonSignatureGroup,
    PythonSignatureNativeFunctionPair,
    returns_structseq_pyi,
    signature,
)
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction
from torchgen.packaged.autograd.gen_python_functions import group_overloads

from .bindings import PLACES, Place, new_names
from .operators import Operators
from .writer import Output

Definitions = Mapping[str, list[str]]
Docstrings = Mapping[tuple[str, str], str]

# The places that have a stub file, and the class in it that holds them, if it is not the module.
_STUBS: dict[str, tuple[str, str | None]] = {
    "methods": ("torch/_C/__init__.pyi", "TensorBase"),
    "torch": ("torch/_C/_VariableFunctions.pyi", None),
    "nn": ("torch/_C/_nn.pyi", None),
}
_RETURN_TYPES = "torch/return_types.pyi"
_OVERLOAD = "@overload\n"


def generate_stubs(operators: Operators, docstrings: Docstrings, base: Path, overlay: Output) -> None:
    """Write every stub file that gains a definition.

    Args:
        operators: the merged set.
        docstrings: by the name of the place and that of the function.
        base: the base wheel's tree.
        overlay: takes the files.
    """
    return_types: dict[str, list[str]] = {}
    for place in PLACES:
        groups = new_signature_groups(operators, place)
        for group in groups:
            if named := returns_structseq_pyi(group.signature):
                return_types[named[0]] = [named[1].rstrip()]
        if groups and place.name in _STUBS:
            file, class_name = _STUBS[place.name]
            documented = with_docstrings(hints(groups), place, docstrings)
            text = insert_functions((base / file).read_text(), class_name, documented)
            overlay(overlay.folder / file, text)
    if return_types:
        text = insert_classes((base / _RETURN_TYPES).read_text(), return_types)
        overlay(overlay.folder / _RETURN_TYPES, text)


@cache
def new_signature_groups(operators: Operators, place: Place) -> list[PythonSignatureGroup]:
    """Python signatures bound at ``place`` that belong to new operators; an out variant is part of its base's group."""
    names = new_names(operators, place)
    functions = [f for f in operators.bindable if f.func.name.name in names and place.predicate(f)]
    pairs = [signature_pair(f, place) for f in functions]
    groups: list[PythonSignatureGroup] = []
    for name in sorted(names, key=str):
        of_this_name = [pair for pair in pairs if pair.function.func.name.name == name]
        groups += (group for group in group_overloads(of_this_name) if operators.is_new(group.base))
    return groups


def signature_pair(f: NativeFunction, place: Place) -> PythonSignatureNativeFunctionPair:
    """``f`` with its Python signature, in the types that stub files use."""
    with native_function_manager(f):
        return PythonSignatureNativeFunctionPair(signature(f, method=place.is_method, pyi=True), f)


def hints(groups: Iterable[PythonSignatureGroup]) -> dict[str, list[str]]:
    """The definitions of a stub file, by function name."""
    found: dict[str, list[str]] = {}
    for group in groups:
        vararg = group.signature.signature_str_pyi_vararg(skip_outputs=group.outplace is None)
        texts = [function_hint(group), *([_in_python(vararg)] if vararg else [])]
        found.setdefault(group.signature.name, []).extend(texts)
    return found


def function_hint(group: PythonSignatureGroup) -> str:
    """The definition of ``group`` in a stub file."""
    return _in_python(group.signature.signature_str_pyi(skip_outputs=group.outplace is None))


def with_docstrings(definitions: Definitions, place: Place, docstrings: Docstrings) -> dict[str, list[str]]:
    """``definitions`` with the docstrings that upstream's generator writes into stubs, too (tools/pyi/gen_pyi.py)."""
    documented = {}
    for name, texts in definitions.items():
        doc = docstrings.get((place.name, name), "")
        body = "\n" + textwrap.indent(f'r"""\n{doc}\n"""\n', "    ")
        is_writable = doc and '"""' not in doc and not doc.endswith("\\")
        documented[name] = [text.removesuffix(" ...") + body if is_writable else text for text in texts]
    return documented


# ATen/core/Reduction.h
_REDUCTIONS = {"at::Reduction::None": "0", "at::Reduction::Mean": "1", "at::Reduction::Sum": "2"}


def _in_python(hint: str) -> str:
    """``hint`` without the defaults that torchgen leaves in C++."""
    for cpp, python in _REDUCTIONS.items():
        hint = hint.replace(cpp, python)
    return re.sub(r"= \w+(::\w+)+", "= ...", hint)


def insert_functions(text: str, class_name: str | None, definitions: Definitions) -> str:
    """Insert function definitions into a stub's module or class, keeping the names sorted and overloads together."""
    module = ast.parse(text)
    scope: ast.Module | ast.ClassDef = module
    if class_name is not None:
        scope = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    indent = "    " if class_name else ""
    functions = [node for node in scope.body if isinstance(node, ast.FunctionDef)]
    insertions: list[tuple[int, str]] = []
    for name, texts in definitions.items():
        same = [node for node in functions if node.name == name]
        is_overloaded = len(same) + len(texts) > 1
        block = "".join(f"@overload\n{hint}\n" if is_overloaded else f"{hint}\n" for hint in texts)
        insertions.append((_place_for(name, same, functions, scope), textwrap.indent(block, indent)))
        if len(same) == 1 and not same[0].decorator_list:
            insertions.append((same[0].lineno - 1, f"{indent}{_OVERLOAD}"))
    if class_name is None:
        insertions += _exports(module, definitions)
    return _insert_lines(text, insertions)


def insert_classes(text: str, definitions: Definitions) -> str:
    """Insert class definitions into a stub's module, keeping the names sorted."""
    module = ast.parse(text)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    insertions = []
    for name, texts in definitions.items():
        if not any(node.name == name for node in classes):
            following = next((node for node in classes if node.name > name), None)
            line = following.lineno - 1 if following else len(text.splitlines())
            insertions.append((line, "".join(f"{definition}\n\n" for definition in texts)))
    return _insert_lines(text, [*insertions, *_exports(module, definitions)])


def _place_for(name: str, same: list[ast.FunctionDef], functions: list[ast.FunctionDef], scope: ast.AST) -> int:
    """The number of lines that come before a new definition of ``name``."""
    if same:
        return same[-1].end_lineno or 0
    following = next((node for node in functions if node.name > name), None)
    if following is not None:
        return min([following.lineno, *(decorator.lineno for decorator in following.decorator_list)]) - 1
    return max((getattr(node, "end_lineno", None) or 0 for node in ast.walk(scope)), default=0)


def _exports(module: ast.Module, names: Iterable[str]) -> list[tuple[int, str]]:
    """Insertions that add ``names`` to the module's ``__all__``."""
    exports = next(
        (
            node.value.elts
            for node in module.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
            and isinstance(node.value, ast.List)
        ),
        [],
    )
    listed = [(str(entry.value), entry.lineno) for entry in exports if isinstance(entry, ast.Constant)]
    insertions = []
    for name in names:
        if listed and name not in dict(listed):
            following = next((line - 1 for other, line in listed if other > name), listed[-1][1])
            insertions.append((following, f'    "{name}",\n'))
    return insertions


def _insert_lines(text: str, insertions: Iterable[tuple[int, str]]) -> str:
    lines = text.splitlines(keepends=True)
    # From the end, so that the numbers of the lines before stay right. Of two at one line the one that belongs to what
    # follows goes in first, and then the later name.
    ordered = sorted(insertions, key=lambda item: (item[0], item[1].strip() == _OVERLOAD.strip(), item[1]))
    for line, block in reversed(ordered):
        lines.insert(line, block)
    return "".join(lines)
