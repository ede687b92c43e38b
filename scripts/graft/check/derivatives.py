"""Check an entry of derivatives.yaml."""

from __future__ import annotations

from collections.abc import Container

from torchgen.model import Argument, DispatchKey, FunctionSchema, SchemaKind

from .base import BaseOperators
from .cplusplus import Source
from .entries import Entry
from .finding import Findings, line_of, nearest
from .formulas import Surroundings, check_formulas, formulas
from .generated import check_generated
from .schemas import Function

# The keys of an entry that are not names of arguments or returns (explained at the top of PyTorch's derivatives.yaml).
_OTHER_KEYS = frozenset({"name", "dispatch", "output_differentiability", "result"})


def check_derivatives(
    entries: list[Entry],
    functions: list[Function],
    unknown: set[str],
    sources: list[Source],
    base: BaseOperators,
    findings: Findings,
) -> None:
    """Check each entry against its function.

    Args:
        entries: the entries of the folders' derivatives.yaml.
        functions: the folders' functions.
        unknown: names of functions with invalid entries; their formulas are not checked.
        sources: the folders' C++ sources.
        base: the base.
        findings: receives errors.
    """
    own = {str(f.schema.name): f for f in functions}
    generated = {str(made) for f in functions for made in f.native.autogen}
    around = Surroundings(base, functions, sources)
    seen: dict[str, Entry] = {}
    sound: list[Entry] = []
    for entry in entries:
        if "name" not in entry.fields:
            what = "an entry needs the key `name`"
            findings.add((entry.file, entry.line, 0), what, "write `- name: ` and the schema of the function")
            continue
        name = entry.operator
        place = entry.value("name")
        if name in generated | unknown:
            continue  # generated functions are checked by torchgen; unknown ones cannot be checked
        if name in seen:
            other = line_of(seen[name].file, seen[name].line, entry.file)
            findings.add(place, f"{name} has an entry in {other} already", "merge the two entries")
            continue
        seen[name] = entry
        if name in base.derivatives:
            findings.add(place, f"PyTorch already has a derivative formula for {name}", "leave this entry out")
            continue
        schema = _schema_of(name, entry, own, base, findings)
        if schema is None:
            continue
        if name in own and set(own[name].kernels) == {DispatchKey.CompositeImplicitAutograd}:
            what = f"{name} is CompositeImplicitAutograd: autograd differentiates the operators that it calls"
            findings.add(place, what, "leave this entry out, or add `dispatch:` to the operator's entry")
            continue
        before = len(findings.errors)
        _check_keys(entry, schema, findings)
        check_formulas(entry, schema, around, findings)
        _check_outputs(entry, schema, findings)
        if len(findings.errors) == before and name in own:
            sound.append(entry)
    check_generated(sound, functions, findings)
    _say_what_is_not_differentiable(functions, seen, findings)


def _schema_of(
    name: str, entry: Entry, own: dict[str, Function], base: BaseOperators, findings: Findings
) -> FunctionSchema | None:
    place = entry.value("name")
    if name in own:
        schema = own[name].schema
    elif name in base.schemas:
        schema = FunctionSchema.parse(base.schemas[name])
    else:
        todo = nearest(name, own) if own else "add it to native_functions.yaml"
        findings.add(place, f"no function is named {name}", todo)
        return None
    given = str(entry.fields["name"])
    if given != str(schema):
        findings.add(place, f"the signature differs from the function's: {given}", f"write `{schema}`")
        return None
    return schema


def _differentiable(arguments: tuple[Argument, ...] | list[Argument]) -> list[str]:
    return [a.name for a in arguments if a.type.is_tensor_like()]


def _check_keys(entry: Entry, schema: FunctionSchema, findings: Findings) -> None:
    names = [a.name for a in schema.arguments.flat_non_out]
    returns = [r.name for r in schema.returns if r.name]
    results = [f"result{i}" for i in range(len(schema.returns))] if len(schema.returns) > 1 else []
    differentiable = _differentiable(schema.arguments.flat_non_out)
    given: set[str] = set()
    for key in entry.fields:
        parts = [part.strip() for part in key.split(",")]
        for part in parts:
            if part in _OTHER_KEYS or part in returns or part in results:
                continue
            if part not in names:
                todo = nearest(part, [*names, *returns, *results, *_OTHER_KEYS])
                findings.add(entry.place(key), f"{schema.name} has no argument `{part}`", todo)
            elif part not in differentiable and entry.fields[key] != "non_differentiable":
                kind = next(a.type for a in schema.arguments.flat_non_out if a.name == part)
                what = f"`{part}` is {kind}, which has no gradient"
                findings.add(entry.place(key), what, f"give gradients for {', '.join(differentiable) or 'no argument'}")
        given.update(parts)
    missing = [name for name in differentiable if name not in given]
    outputs = entry.fields.get("output_differentiability")
    if isinstance(outputs, list) and outputs and not any(outputs):
        missing = []
    if missing and "dispatch" not in entry.fields:
        place = (entry.file, entry.line, 0)
        names_missing = ", ".join(missing)
        todo = f'add `{missing[0]}: <formula>`, `non_differentiable` or `not_implemented("{schema.name}")`'
        findings.add(place, f"there is no gradient for {names_missing}", todo, is_warning=True)


def _check_outputs(entry: Entry, schema: FunctionSchema, findings: Findings) -> None:
    """output_differentiability has a boolean, or a condition, for each return."""
    given = entry.fields.get("output_differentiability")
    if given is not None and not isinstance(given, list):
        what = f"output_differentiability is not a list: {given}"
        findings.add(entry.place("output_differentiability"), what, "write `[True]`, with one value for each return")
    if isinstance(given, list) and len(given) != len(schema.returns):
        what = f"{len(given)} values for {len(schema.returns)} returns of {schema.name}"
        findings.add(entry.place("output_differentiability"), what, "write one value for each return")
    elif isinstance(given, list) and not any(given):
        useless = [key for key, formula, _ in formulas(entry) if formula.strip() != "non_differentiable"]
        if useless:
            what = f"no output of {schema.name} has a gradient, but {', '.join(useless)} has a formula"
            todo = "leave the formula out, or write True for an output that has a gradient"
            findings.add(entry.place("output_differentiability"), what, todo)


def _say_what_is_not_differentiable(functions: list[Function], seen: Container[str], findings: Findings) -> None:
    """An operator without a formula raises an error in backward. That should be a decision, not an oversight."""
    for function in functions:
        schema = function.schema
        takes = _differentiable(schema.arguments.flat_non_out)
        gives = any(r.type.is_tensor_like() for r in schema.returns)
        is_functional = schema.kind() == SchemaKind.functional
        if str(schema.name) in seen or not (takes and gives and is_functional):
            continue
        if function.native.has_composite_implicit_autograd_kernel or "view_copy" in function.native.tags:
            continue
        what = f"{schema.name} has no entry in derivatives.yaml"
        todo = f'add one; `{takes[0]}: not_implemented("{schema.name}")` declares that it has no gradient'
        findings.add((function.entry.file, function.entry.line, 0), what, todo, is_warning=True)
