"""Check the entries of native_functions.yaml that are the variants of one operator.

torchgen decides: it groups the variants, generates those named in ``autogen:``, and reports which do not fit together.
This module also reports variants that torchgen accepts although a build would fail.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ..codegen.lists import without_out
from ..codegen.torchgen import (
    MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION,
    BackendIndex,
    FunctionSchema,
    Kernels,
    SchemaKind,
    accepted_without_out,
    add_generated_native_functions,
    error_check_native_functions,
    generate_function,
    get_grouped_by_view_native_functions,
    get_grouped_native_functions,
    modifies_arguments,
)
from ..inputs.entries import Entry
from . import Findings
from .base import BaseOperators
from .schemas import Function, code_and_remedy, root_of
from .writing import is_accepted


def check_groups(entries: list[Entry], functions: list[Function], base: BaseOperators, findings: Findings) -> None:
    """Run torchgen's grouping for each name without other errors."""
    broken = {(error.file, error.line) for error in findings.errors}
    # By identity, since YAML allows two entries on one line.
    sound = {id(f.entry) for f in functions if not broken & {(p[0], p[1]) for p in f.entry.places.values()}}
    waiting = {root_of(entry.operator) for entry in entries if id(entry) not in sound}
    by_root: dict[str, list[Function]] = defaultdict(list)
    for function in functions:
        by_root[root_of(function.entry.operator)].append(function)
    with accepted_without_out(without_out(f.entry.schema for f in functions)):
        for root, group in by_root.items():
            if root not in waiting:
                _check_group(root, group, base, findings)


def _check_group(root: str, group: list[Function], base: BaseOperators, findings: Findings) -> None:
    functions = [*((f.native, f.kernels) for f in group), *base.functions_like(root)]
    natives = [native for native, _ in functions]
    schemas = [native.func for native in natives]
    kernels: Kernels = defaultdict(dict)
    try:
        for _, of_native in functions:
            BackendIndex.grow_index(kernels, of_native)
        error_check_native_functions(natives)
        add_generated_native_functions(natives, kernels)
        grouped = get_grouped_native_functions(natives)
        get_grouped_by_view_native_functions(natives)
    except Exception as error:  # torchgen raises arbitrary errors
        what = str(error).strip() or f"torchgen cannot group the variants of this operator ({type(error).__name__})"
        named = {
            m.start(): f
            for f in group
            if (m := re.search(rf"(?<![\w.]){re.escape(str(f.schema.name))}(?!\w|\.\w)", what))
        }
        of = named[min(named)] if named else group[0]
        is_delegate, is_alone = "structured_delegate pointing to" in what, "could not find any other variants" in what
        code, todo = code_and_remedy(what, base)
        todo = f"add an entry for `{_functional(of.schema)}`" if is_alone else todo
        place = of.entry.place("structured_delegate") if is_delegate else of.entry.value("func")
        findings.add(code, place, what, todo)
        return
    for f in group:
        if any(f.native is one for one in grouped):
            _check_lonely(f, schemas, findings)


def _functional(schema: FunctionSchema) -> FunctionSchema:
    """Return the schema of the functional variant of an in-place operator or an out variant."""
    signature = schema.signature()
    return signature.with_name(signature.name.with_overload(re.sub("_?out$", "", schema.name.overload_name)))


def _check_lonely(function: Function, schemas: list[FunctionSchema], findings: Findings) -> None:
    """Check that a mutating operator has a functional variant, for functionalization, and an out variant.

    Required by torchgen/gen_functionalization_type.py, which gives no place.
    """
    native, place, twin = function.native, function.entry.value("func"), function.schema.signature()
    if native.has_composite_implicit_autograd_kernel:
        is_there = any(s.kind() == SchemaKind.functional and s.signature() == twin for s in schemas)
        if function.schema.kind() == SchemaKind.inplace and not is_there:
            what = f"{function.schema.name} has no functional variant"
            findings.warn("variant-missing", place, what, f"add an entry for `{_functional(native.func)}`")
    elif modifies_arguments(native) and not native.is_view_op:
        if str(native.func.name) in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION or is_accepted(
            function.entry, native, findings
        ):
            return
        if function.schema.kind() == SchemaKind.functional:
            what = f"{native.func.name} mutates `self`, but has not the name of an in-place operator"
            findings.add("operator-name", place, what, f"name it {native.func.name.name}_")
            return
        has = {schema.kind() for schema in schemas if schema.signature() == twin}
        missing = [kind for kind in (SchemaKind.functional, SchemaKind.out) if kind not in has]
        variants = "functional and out variants" if len(missing) > 1 else f"{missing[0].name} variant"
        what = f"{native.func.name} mutates an argument, but has no {variants}"
        names = ", ".join(str(generate_function(native, kind)[0].func.name) for kind in missing)
        verb = "write" if native.autogen else "add"
        todo = f"{verb} `autogen: {names}` in this entry, or write an entry for each"
        findings.add("variant-missing", place, what, todo)
