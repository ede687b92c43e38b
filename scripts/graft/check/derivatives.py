"""Check entries of derivatives.yaml for errors that torchgen reports without a place, or not at all."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..codegen.operators import derivatives_fields
from ..codegen.torchgen import (
    MANUAL_AUTOGRAD,
    Argument,
    DispatchKey,
    FunctionSchema,
    NativeFunction,
    SchemaKind,
    create_differentiability_info,
    gen_variable_type_func,
    match_differentiability_info,
    use_derived,
)
from ..codegen.writing import is_writing
from ..cpp.functions import Definition
from ..cpp.sources import Source
from ..inputs.entries import REPLACE, Entry, FormulaError
from . import Findings, line_of, nearest
from .base import BaseOperators
from .formulas import check_formulas, check_text, output_names
from .schemas import Function, check_releases, root_of
from .surroundings import Surroundings
from .writing import refuses_formula

# The keys of an entry besides names of arguments and returns. PyTorch's derivatives.yaml explains them at its top.
_OTHER_KEYS = frozenset({"name", "dispatch", "output_differentiability", "result"})


def check_derivatives(
    entries: list[Entry],
    functions: list[Function],
    unknown: set[str],
    sources: list[Source],
    base: BaseOperators,
    findings: Findings,
    declared: Sequence[Definition] = (),
) -> None:
    """Check each entry against its function, except for those in ``unknown``, whose own entries are invalid.

    Formulas may call PyTorch's functions, and those in ``declared``.
    """
    own = {str(f.schema.name): f for f in functions if not f.entry.is_replacing}
    explicit = {str(f.schema.name): f for f in functions if f.is_explicit_now}
    generated = {str(made) for f in own.values() for made in f.native.autogen}
    seen: dict[str, Entry] = {}
    sound: list[Entry] = []
    for entry in entries:
        name = entry.operator
        check_releases(entry, findings)
        if "name" not in entry.fields:
            todo = "write `- name: ` and the schema of the function"
            findings.add("key-missing", (entry.file, entry.line, 0), "an entry needs the key `name`", todo)
        elif name in seen:
            other = line_of(seen[name].file, seen[name].line, entry.file)
            what = f"{name} has an entry in {other} already"
            findings.add("duplicate-entry", entry.value("name"), what, "merge the two entries")
        elif name in base.schemas and not entry.is_replacing:
            has = "a derivative formula for" if name in base.derivatives else "an operator"
            what = f"PyTorch already has {has} {name}"
            todo = "leave this entry out, or add `replace: True` to give PyTorch's operator this formula"
            if name in base.declared:
                what, todo = f"another load has the operator {name}", "write its formula there"
            findings.add("operator-exists", entry.value("name"), what, todo)
        elif name not in generated | unknown:  # generated functions are checked by torchgen
            before = len(findings.errors)
            schema = _schema_of(name, entry, own, explicit, base, findings)
            if schema and (whole := _whole(entry, base, findings)):
                _check_keys(whole, schema, findings)
                check_text(entry, schema, findings)
                sound += [whole] if len(findings.errors) == before else []
            seen[name] = entry
    natives = {name: f.native for name, f in own.items()}
    for root in {root_of(entry.operator) for entry in sound if entry.operator not in own}:
        natives |= {str(native.func.name): native for native, _ in base.functions_like(root)}
    natives |= {name: f.native for name, f in explicit.items()}
    # Formulas may call operators whose entries are invalid.
    around = Surroundings(base, [*own.values()], sources, unknown, declared)
    _let_torchgen_judge(sound, [*natives.values()], around, findings)
    _warn_of_missing([*own.values(), *explicit.values()], seen, findings)


def _whole(entry: Entry, base: BaseOperators, findings: Findings) -> Entry | None:
    """Add PyTorch's formulas for the arguments that a replacing entry leaves out. Return other entries as they are,
    and None for an entry that cannot replace PyTorch's, which is reported.
    """
    if not entry.is_replacing:
        return entry
    try:
        return entry.in_place_of(base.formulas(entry.operator))
    except FormulaError as error:
        place = entry.values.get(error.key, (entry.file, entry.line, 0))
        todo = "write it out" if error.key else "PyTorch's derivatives.yaml has it"
        findings.add("stock-formula", place, str(error), todo)
        return None


def _schema_of(
    name: str,
    entry: Entry,
    own: dict[str, Function],
    explicit: dict[str, Function],
    base: BaseOperators,
    findings: Findings,
) -> FunctionSchema | None:
    place = entry.value("name")
    if name not in own and name not in base.schemas:
        todo = nearest(name, own) if own else "add it to native_functions.yaml"
        findings.add("unknown-operator", place, f"no function is named {name}", todo)
        return None
    schema = own[name].schema if name in own else FunctionSchema.parse(base.schemas[name])
    if entry.is_replacing and name in own:
        what = f"{name} is not an operator of PyTorch"
        findings.add("unknown-operator", entry.place(REPLACE), what, "leave `replace` out")
        return None
    if name not in own and str(schema.name.name) in MANUAL_AUTOGRAD:
        what = f"PyTorch differentiates {name} in C++, without a formula"
        findings.add("needless-formula", place, what, "leave this entry out")
        return None
    if _is_composite(name, own | explicit, base):
        what = f"{name} is CompositeImplicitAutograd: autograd differentiates the operators that it calls"
        todo = "leave this entry out, or add `dispatch:` to the operator's entry"
        findings.add("needless-formula", place, what, todo)
        return None
    if name in own and refuses_formula(schema, entry, findings):
        return None
    given = str(entry.fields["name"])
    if given != str(schema):
        what = f"the signature differs from the function's: {given}"
        findings.add("schema-differs", place, what, f"write `{schema}`")
        return None
    return schema


def _is_composite(name: str, own: dict[str, Function], base: BaseOperators) -> bool:
    """Return whether an operator of the folder or of PyTorch is CompositeImplicitAutograd and nothing else."""
    if name in own:
        return set(own[name].kernels) == {DispatchKey.CompositeImplicitAutograd}
    like = base.functions_like(root_of(name))
    return any(str(f.func.name) == name and set(keys) == {DispatchKey.CompositeImplicitAutograd} for f, keys in like)


def _differentiable(arguments: tuple[Argument, ...] | list[Argument]) -> list[str]:
    return [a.name for a in arguments if a.type.is_tensor_like()]


def _check_keys(entry: Entry, schema: FunctionSchema, findings: Findings) -> None:
    arguments = {a.name: a.type for a in schema.arguments.flat_non_out}
    differentiable = _differentiable(schema.arguments.flat_non_out)
    others = {*_OTHER_KEYS, *output_names(schema)}
    given: set[str] = set()
    for key, formula in entry.fields.items():
        parts = {part.strip() for part in key.split(",")}
        given |= parts
        for part in sorted(parts - others):
            if part not in arguments:
                todo = nearest(part, {*differentiable, *others} - entry.fields.keys())
                findings.add("unknown-argument", entry.place(key), f"{schema.name} has no argument `{part}`", todo)
            elif part not in differentiable and formula != "non_differentiable":
                what = f"`{part}` is {arguments[part]}, which has no gradient"
                todo = f"give gradients for {', '.join(differentiable) or 'no argument'}"
                findings.add("not-differentiable", entry.place(key), what, todo)
    outputs, place = entry.fields.get("output_differentiability"), entry.place("output_differentiability")
    if outputs is not None and not isinstance(outputs, list):
        what = f"output_differentiability is not a list: {outputs}"
        findings.add("output-differentiability", place, what, "write `[True]`, with one value for each return")
    elif outputs is not None and len(outputs) != len(schema.returns):
        what = f"{len(outputs)} values for {len(schema.returns)} returns of {schema.name}"
        findings.add("output-differentiability", place, what, "write one value for each return")
    missing = [name for name in differentiable if name not in given]
    is_sure = given <= {*arguments, *others}  # or it is misspelt
    if missing and is_sure and "dispatch" not in entry.fields and (outputs is None or any(outputs)):
        todo = f'add `{missing[0]}: <formula>`, `non_differentiable` or `not_implemented("{schema.name}")`'
        what = f"there is no gradient for {', '.join(missing)}"
        findings.warn("gradient-missing", (entry.file, entry.line, 0), what, todo)


def _let_torchgen_judge(
    entries: list[Entry], natives: list[NativeFunction], around: Surroundings, findings: Findings
) -> None:
    """Report torchgen's errors about ``entries``, and errors in the formulas that it makes, which a compiler would
    refuse. Each entry is processed together with the variants of its operator.
    """
    by_root: dict[str, list[NativeFunction]] = defaultdict(list)
    for native in natives:
        by_root[root_of(str(native.func.name))].append(native)
    infos: dict[str, dict[FunctionSchema, Any]] = defaultdict(dict)
    judged: list[tuple[Entry, FunctionSchema]] = []
    for entry in entries:
        with _told(entry, findings):
            schema, of_keys = _info(entry, by_root[root_of(entry.operator)])
            infos[root_of(entry.operator)][schema] = of_keys
            before = len(findings.errors)
            check_formulas(entry, of_keys, around, findings)
            judged += [(entry, schema)] if len(findings.errors) == before else []
    for entry, schema in judged:
        root = root_of(entry.operator)
        with _told(entry, findings):
            for matched in match_differentiability_info(by_root[root], infos[root]):
                if matched.info and use_derived(matched) and any(i.func.func == schema for i in matched.info.values()):
                    gen_variable_type_func(matched)


@contextmanager
def _told(entry: Entry, findings: Findings) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # torchgen raises arbitrary errors
        what = re.sub(r"\s+in native_functions\.yaml line.*", "", str(error), flags=re.S)
        what = what or f"torchgen cannot process this entry ({type(error).__name__})"
        todo = "compare it with an entry of PyTorch's own derivatives.yaml"
        findings.add("formula-refused", entry.value("name"), what, todo)


def _info(entry: Entry, natives: list[NativeFunction]) -> Any:
    by_signature: dict[FunctionSchema, list[NativeFunction]] = defaultdict(list)
    for native in natives:
        by_signature[native.func.signature()].append(native)
    by_schema = {str(native.func): native for native in natives}
    fields = derivatives_fields(entry.fields)
    return create_differentiability_info(fields, by_signature, by_schema, Counter(), set())


def _warn_of_missing(functions: list[Function], seen: Container[str], findings: Findings) -> None:
    """Warn of operators without a formula: they raise an error in backward, which should not happen by oversight."""
    for function in functions:
        schema, native = function.schema, function.native
        takes = _differentiable(schema.arguments.flat_non_out)
        gives = any(r.type.is_tensor_like() for r in schema.returns)
        is_free = native.has_composite_implicit_autograd_kernel or "view_copy" in native.tags or is_writing(native)
        if str(schema.name) not in seen and takes and gives and not is_free and schema.kind() == SchemaKind.functional:
            todo = f'add one; `{takes[0]}: not_implemented("{schema.name}")` declares that it has no gradient'
            what = f"{schema.name} has no entry in derivatives.yaml"
            findings.warn("formula-missing", (function.entry.file, function.entry.line, 0), what, todo)
