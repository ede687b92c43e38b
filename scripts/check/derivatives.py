"""What can be wrong with an entry of derivatives.yaml."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from torchgen.model import Argument, DispatchKey, FunctionSchema, NativeFunction, SchemaKind
from torchgen.packaged.autograd.load_derivatives import create_differentiability_info

from .base import BaseOperators
from .entries import Entry, Place
from .finding import Findings, nearest
from .functions import Function

# The keys of an entry that are no argument's or return's name (the head of PyTorch's derivatives.yaml explains them).
_OTHER_KEYS = frozenset({"name", "dispatch", "output_differentiability", "result"})
_SPECIAL = ("auto_linear", "auto_element_wise", "non_differentiable", "not_implemented")

# What a formula may say besides the names that PyTorch or the folder knows.
_LANGUAGE = frozenset(
    re.findall(
        r"\w+",
        """alignas auto bool break case char class const constexpr continue decltype default do double else enum
        explicit false float for if int int64_t long namespace new nullptr operator return short signed sizeof static
        std struct switch template this throw true typename union unsigned using void while size_t uint8_t nullopt
        vector string tuple array optional move forward get make_tuple any all begin end size""",
    )
)


def check_derivatives(
    entries: list[Entry],
    functions: list[Function],
    unknown: set[str],
    base: BaseOperators,
    words: set[str],
    findings: Findings,
) -> None:
    """Check each entry against the function it is for.

    Args:
        entries: of the folder's derivatives.yaml.
        functions: of the folder.
        unknown: the names of functions whose entries are not understood; what is said of them is not judged.
        base: what PyTorch has.
        words: identifiers that the folder's own headers and sources know.
        findings: takes what is wrong.
    """
    own = {str(f.schema.name): f for f in functions}
    generated = {str(made) for f in functions for made in f.native.autogen}
    seen: dict[str, int] = {}
    for entry in entries:
        if "name" not in entry.fields:
            what = "an entry needs the key `name`"
            findings.add((entry.file, entry.line, 0), what, "write `- name: ` and the schema of the function")
            continue
        name = entry.operator
        place = entry.value("name")
        if name in generated | unknown:
            continue  # torchgen makes the generated ones, and judges their entries; of the unknown nothing is known
        if name in seen:
            findings.add(place, f"{name} has an entry in line {seen[name]} already", "make one of the two")
            continue
        seen[name] = entry.line
        if name in base.derivatives:
            findings.add(place, f"PyTorch has a derivative formula of {name} already", "leave this entry out")
            continue
        schema = _schema_of(name, entry, own, base, findings)
        if schema is None:
            continue
        if name in own and set(own[name].kernels) == {DispatchKey.CompositeImplicitAutograd}:
            what = f"{name} is CompositeImplicitAutograd: it is differentiated through what it calls"
            findings.add(place, what, "leave this entry out, or give the operator a `dispatch:` of its own")
            continue
        before = len(findings.found)
        _check_keys(entry, schema, findings)
        _check_formulas(entry, schema, base.formula_words | words, findings)
        _check_outputs(entry, schema, findings)
        if len(findings.found) == before and name in own:
            _ask_torchgen(entry, name, functions, findings)
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
        findings.add(place, f"no gradient is given for {names_missing}", todo, is_warning=True)


def _check_outputs(entry: Entry, schema: FunctionSchema, findings: Findings) -> None:
    """output_differentiability has a truth value, or a condition, for each return."""
    given = entry.fields.get("output_differentiability")
    if given is not None and not isinstance(given, list):
        what = f"output_differentiability is no list: {given}"
        findings.add(entry.place("output_differentiability"), what, "write `[True]`, a value for each return")
    if isinstance(given, list) and len(given) != len(schema.returns):
        what = f"{len(given)} values for {len(schema.returns)} returns of {schema.name}"
        findings.add(entry.place("output_differentiability"), what, "write a value for each return")


def _formulas(entry: Entry) -> Iterator[tuple[str, str, Place]]:
    for key, value in entry.fields.items():
        if isinstance(value, str) and key not in ("name", "output_differentiability"):
            yield key, value, entry.value(key)
    dispatch = entry.fields.get("dispatch")
    if isinstance(dispatch, dict):
        for formulas in dispatch.values():
            for key, value in formulas.items() if isinstance(formulas, dict) else []:
                if isinstance(value, str):
                    yield str(key), value, entry.place("dispatch")


def _check_formulas(entry: Entry, schema: FunctionSchema, words: set[str], findings: Findings) -> None:
    arguments = [a.name for a in schema.arguments.flat_all]
    returns = [r.name for r in schema.returns if r.name]
    results = [f"result{i}" for i in range(len(schema.returns))] if len(schema.returns) > 1 else []
    always = {*arguments, *returns, *results, "result", "grad_input_mask", "retain_variables", "wrap_opt_if"}
    gradients = {"grad", "grads", *(f"grad_{name}" for name in returns)}
    duals = {f"{name}_{kind}" for name in (*arguments, *returns, *results, "result") for kind in ("t", "p")}
    for key, formula, place in _formulas(entry):
        is_forward = {part.strip() for part in key.split(",")} <= {"result", *returns, *results}
        values = always | (duals if is_forward else gradients)
        known = (words | _LANGUAGE) - (gradients if is_forward else duals) | values
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', formula)
        word = code.strip()
        if re.fullmatch(r"\w+", word) and word not in {*values, *_SPECIAL} and not word.isdigit():
            findings.add(place, f"`{word}` is no formula", nearest(word, [*_SPECIAL, *values]))
            continue
        if word in _SPECIAL:
            continue
        declared = set(re.findall(r"\b(?:auto|const|int64_t|Tensor|bool|double)\s*&?\s*(\w+)", code))
        for word in dict.fromkeys(re.findall(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*", code)):
            is_output_that_is_not = re.fullmatch(r"result\d+", word) and word not in values
            if word not in known | declared or is_output_that_is_not:
                what = f"the formula names `{word}`, which nobody defines"
                todo = nearest(word, values, otherwise="name an argument, an output, or a function of ATen's")
                if word in gradients | duals:
                    there, here = ("backward", "`self_t`") if is_forward else ("forward", "`grad`")
                    what = f"the formula of `{key}` names `{word}`, which only formulas of the {there} pass have"
                    todo = f"write it with {here} and the like"
                findings.add(place, what, todo, is_warning=True)
        if not is_forward and not _uses_gradient(code):
            what = f"the gradient of `{key}` does not use `grad`"
            todo = 'multiply by `grad`, or write `non_differentiable` or `not_implemented("...")`'
            findings.add(place, what, todo, is_warning=True)


def _uses_gradient(code: str) -> bool:
    says_none = r"\bgrads?\b|\bgrad_\w+|not_implemented|non_differentiable|zeros_like|undefined|Tensor\(\)|zeros"
    return re.search(says_none, code) is not None


def _ask_torchgen(entry: Entry, name: str, functions: list[Function], findings: Findings) -> None:
    """Let torchgen judge the entry, with the functions of the same name."""
    root = name.partition(".")[0].rstrip("_")
    natives = [f.native for f in functions if f.schema.name.name.base == root]
    by_signature: dict[FunctionSchema, list[NativeFunction]] = defaultdict(list)
    for native in natives:
        by_signature[native.func.signature()].append(native)
    fields: dict[str, Any] = dict(entry.fields)
    if "dispatch" not in fields:  # as load_derivatives does it
        about_all: dict[str, Any] = {
            key: fields.pop(key) for key in ("name", "output_differentiability") if key in fields
        }
        fields = {**about_all, "dispatch": {"Default": fields}}
    try:
        create_differentiability_info(fields, by_signature, {str(f.func): f for f in natives}, Counter(), set())
    except Exception as error:
        what = str(error) or f"torchgen cannot make sense of this entry ({type(error).__name__})"
        findings.add(entry.value("name"), what, "compare it with an entry of PyTorch's own derivatives.yaml")


def _say_what_is_not_differentiable(functions: list[Function], seen: dict[str, int], findings: Findings) -> None:
    """An operator without a formula raises in backward: that should be a decision, not an oversight."""
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
        todo = f'add one; `{takes[0]}: not_implemented("{schema.name}")` says that it has no gradient'
        findings.add((function.entry.file, function.entry.line, 0), what, todo, is_warning=True)
