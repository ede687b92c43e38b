"""Check entries of native_functions.yaml."""

from __future__ import annotations

import keyword
from collections.abc import Callable

from torchgen.model import BaseOperatorName, SchemaKind, Variant

from ..codegen.description import PYTHON_MODULES
from .base import BaseOperators
from .entries import Entry
from .finding import Findings, line_of, nearest
from .schemas import Function, has_known_keys, parse_entry


def check_functions(entries: list[Entry], base: BaseOperators, findings: Findings) -> list[Function]:
    """Check each entry and how they fit together. Return the valid ones."""
    functions = []
    seen: dict[str, Entry] = {}
    for entry in entries:
        if has_known_keys(entry, findings):
            function = parse_entry(entry, base, findings)
            name = entry.operator
            if name in seen:
                place = entry.value("func")
                other = line_of(seen[name].file, seen[name].line, entry.file)
                findings.add(place, f"{name} is also defined in {other}", "give it an overload name")
            elif name in base.schemas:
                what = f"PyTorch already has {base.schemas[name]}"
                findings.add(entry.value("func"), what, "choose another name, or another overload name")
            seen.setdefault(name, entry)
            if function:
                functions.append(function)
    waiting = {root_of(entry.operator) for entry in misread(entries, functions)}
    for function in functions:
        among_variants = () if root_of(function.entry.operator) in waiting else _CHECKS_AMONG_VARIANTS
        for check in (*_CHECKS, *among_variants):
            check(function, functions, base, findings)
    return functions


def misread(entries: list[Entry], functions: list[Function]) -> list[Entry]:
    """Operators with invalid entries: references to them may be correct."""
    understood = {id(function.entry) for function in functions}
    return [entry for entry in entries if id(entry) not in understood]


def root_of(operator: str) -> str:
    """Return the name shared by all variants of an operator, including the copy variant of a view."""
    name = operator.partition(".")[0]
    try:
        return BaseOperatorName.parse(name).base.removesuffix("_copy")
    except Exception:  # not a name: reported elsewhere
        return name


Check = Callable[[Function, list[Function], BaseOperators, Findings], None]


def _method_needs_self(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    if Variant.method in function.native.variants and function.schema.arguments.self_arg is None:
        what = f"{function.schema.name} is a method, but no argument is named `self`"
        findings.add(function.entry.place("variants"), what, "name the tensor `self`, or leave `method` out")


def _out_is_written(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    if function.schema.name.overload_name.split("_")[-1] == "out" and not function.schema.arguments.out:
        what = f"{function.schema.name} has the name of an out variant, but mutates no argument after the `*`"
        findings.add(function.entry.value("func"), what, "write `*, Tensor(a!) out) -> Tensor(a!)`", is_warning=True)


def _in_place_has_a_functional_twin(
    function: Function, functions: list[Function], base: BaseOperators, findings: Findings
) -> None:
    if function.schema.kind() != SchemaKind.inplace or not function.native.has_composite_implicit_autograd_kernel:
        return  # torchgen generates the variants of other operators, and lists them in `autogen:`
    name = function.schema.name.name.base
    others = [f.schema for f in functions] + base.schemas_like(name)
    twin = function.schema.signature()
    if not any(s.kind() == SchemaKind.functional and s.signature() == twin for s in others):
        what = f"{function.schema.name} has no functional variant"
        findings.add(function.entry.value("func"), what, f"add an entry for `{twin}`", is_warning=True)


def _delegate_exists(function: Function, functions: list[Function], base: BaseOperators, findings: Findings) -> None:
    delegate = function.native.structured_delegate
    if delegate is None:
        return
    place = function.entry.place("structured_delegate")
    target = next((f for f in functions if f.schema.name == delegate), None)
    if target is None:
        known = [str(f.schema.name) for f in functions if f.native.structured]
        todo = nearest(str(delegate), known) if known else f"add an entry for {delegate} with `structured: True`"
        findings.add(place, f"structured_delegate: this folder has no operator {delegate}", todo)
    elif not target.native.structured:
        what = f"structured_delegate: {delegate} is not structured"
        where = line_of(target.entry.file, target.entry.line, function.entry.file)
        findings.add(place, what, f"add `structured: True` to its entry, in {where}")


def _pointwise_is_said(function: Function, functions: list[Function], base: BaseOperators, findings: Findings) -> None:
    """TensorIterator is elementwise, and torch.compile relies on the tag."""
    delegate = function.native.structured_delegate
    kernel = next((f for f in functions if f.schema.name == delegate), function)
    reduces = any("dim" in a.name for a in kernel.schema.arguments.flat_all)
    iterates = kernel.native.structured_inherits == "TensorIteratorBase"
    if iterates and not reduces and "pointwise" not in function.native.tags:
        place = (function.entry.file, function.entry.line, 0)
        what = f"{function.schema.name} is a TensorIterator operator without the tag `pointwise`"
        findings.add(place, what, "add `tags: pointwise` if it is elementwise", is_warning=True)


def _name_is_free(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    name = function.schema.name.name
    if name.dunder_method or str(name) in base.base_names:
        return
    place = function.entry.value("func")
    if keyword.iskeyword(str(name)):
        findings.add(place, f"`{name}` is a Python keyword, so it cannot be used in a call", "give it another name")
    in_torch = Variant.function in function.native.variants and function.native.python_module is None
    if in_torch and str(name) in base.torch_names:
        findings.add(place, f"torch.{name} already exists, and would be hidden", "give it another name")
    if Variant.method in function.native.variants and str(name) in base.tensor_names:
        findings.add(place, f"Tensor.{name} already exists, and would be hidden", "give it another name")


def _module_exists(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    module = function.native.python_module
    if module is not None and module not in PYTHON_MODULES:
        what = f"operators cannot be bound in a Python module `{module}`"
        findings.add(function.entry.place("python_module"), what, nearest(module, PYTHON_MODULES))


def _binding_is_generated(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    if function.native.manual_cpp_binding:
        what = "manual_cpp_binding needs a handwritten C++ function in PyTorch's sources"
        findings.add(function.entry.place("manual_cpp_binding"), what, "leave it out; the function is then generated")


_CHECKS: tuple[Check, ...] = (
    _method_needs_self,
    _out_is_written,
    _pointwise_is_said,
    _name_is_free,
    _module_exists,
    _binding_is_generated,
)
_CHECKS_AMONG_VARIANTS: tuple[Check, ...] = (_in_place_has_a_functional_twin, _delegate_exists)
