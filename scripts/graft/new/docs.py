"""The docstring: what the schema says, and TODOs for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchgen.api.python import PythonSignatureNativeFunctionPair, signature
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, SchemaKind
from torchgen.packaged.autograd.gen_python_functions import group_overloads

from ..codegen.python import derived_body
from .request import Request


def docs_file(request: Request, functions: Sequence[NativeFunction], native: Path, known: set[str]) -> dict[str, str]:
    """Return the docstring's file, by path in the native folder; empty for documented or private operators.

    Args:
        request: the requested operator.
        functions: torchgen's result for the entries.
        native: the native folder.
        known: the names of PyTorch's own operators.
    """
    name = str(request.func.name.name)
    file = f"docs/{name}.rst"
    if name.startswith("_") or name in known or (native / file).exists():
        return {}
    pairs = []
    for f in functions:
        with native_function_manager(f):
            if f.func.kind() in (SchemaKind.functional, SchemaKind.out):
                pairs.append(PythonSignatureNativeFunctionPair(signature(f, method=False, pyi=True), f))
    (group,) = group_overloads(pairs)
    return {file: derived_body(group, summary="TODO: what it computes, in one line.", todo="TODO.") + "\n"}
