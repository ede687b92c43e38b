"""Check the variants of one operator together: functional, in-place, out, and views of each kind.

torchgen decides: it groups the variants, generates those named in ``autogen:``, and reports which do not fit together.
"""

from __future__ import annotations

from collections import defaultdict

from torchgen.gen import (
    error_check_native_functions,
    get_grouped_by_view_native_functions,
    get_grouped_native_functions,
)
from torchgen.gen_functionalization_type import MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION, modifies_arguments
from torchgen.model import BackendIndex, BackendMetadata, DispatchKey, OperatorName, SchemaKind
from torchgen.native_function_generation import add_generated_native_functions, generate_function

from ..codegen.upstream import extended_lists
from .base import BaseOperators
from .entries import Entry
from .finding import Findings
from .functions import root_of
from .schemas import Function, remedy


def check_groups(entries: list[Entry], functions: list[Function], base: BaseOperators, findings: Findings) -> None:
    """Run torchgen's grouping for each name without other errors."""
    broken = {(error.file, error.line) for error in findings.errors}
    # By identity, since YAML allows two entries on one line.
    sound = {id(f.entry) for f in functions if not broken & {(p[0], p[1]) for p in f.entry.places.values()}}
    waiting = {root_of(entry.operator) for entry in entries if id(entry) not in sound}
    by_root: dict[str, list[Function]] = defaultdict(list)
    for function in functions:
        by_root[root_of(function.entry.operator)].append(function)
    with extended_lists([f.entry.fields for f in functions], []):
        for root, group in by_root.items():
            if root not in waiting:
                _check_group(root, group, base, findings)


def _check_group(root: str, group: list[Function], base: BaseOperators, findings: Findings) -> None:
    kernels: dict[DispatchKey, dict[OperatorName, BackendMetadata]] = defaultdict(dict)
    natives = [f.native for f in group]
    try:
        for f in group:
            BackendIndex.grow_index(kernels, f.kernels)
        for native, of_native in base.functions_like(root):
            natives.append(native)
            BackendIndex.grow_index(kernels, of_native)
        error_check_native_functions(natives)
        add_generated_native_functions(natives, kernels)
        grouped = get_grouped_native_functions(natives)
        get_grouped_by_view_native_functions(natives)
    except Exception as error:  # torchgen raises arbitrary errors
        what = str(error).strip() or f"torchgen cannot group the variants of this operator ({type(error).__name__})"
        named = [f for f in group if f"{f.schema.name}'" in what or f"{f.schema.name} " in f"{what} "]
        entry = max(named, key=lambda f: len(str(f.schema.name)), default=group[0]).entry
        todo = remedy(what, "compare the variants with those of an operator in PyTorch's own file")
        findings.add(entry.value("func"), what, todo)
        return
    for f in group:
        if any(f.native is one for one in grouped):
            _check_lonely(f, findings)


def _check_lonely(function: Function, findings: Findings) -> None:
    """Functionalization replaces a mutating operator by its functional variant, so it needs one, and an out variant.

    Required by torchgen/gen_functionalization_type.py, which gives no place.
    """
    native = function.native
    if native.has_composite_implicit_autograd_kernel or native.is_view_op or not modifies_arguments(native):
        return
    if str(native.func.name) in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION:
        return
    twins = [generate_function(native, kind)[0].func.name for kind in (SchemaKind.functional, SchemaKind.out)]
    what = f"{native.func.name} mutates an argument, but has no functional and out variants"
    findings.add(function.entry.value("func"), what, f"add `autogen: {twins[0]}, {twins[1]}`, or write them out")
