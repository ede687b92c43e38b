"""What can be wrong with an entry of native_functions.yaml."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass

from torchgen.model import (
    Argument,
    BackendMetadata,
    BaseOperatorName,
    DispatchKey,
    FunctionSchema,
    Location,
    NativeFunction,
    OperatorName,
    Return,
    SchemaKind,
    Variant,
    dispatch_keys,
)

from .base import BaseOperators
from .entries import Entry, Place
from .finding import Findings, nearest

# torchgen takes the keys out of an entry one by one; there is no list of them but its code.
KEYS = frozenset(re.findall(r"""e\.pop\(\s*["'](\w+)["']""", inspect.getsource(NativeFunction.from_yaml))) - {
    "__line__"  # torchgen's loader adds it
}

# The modules that torchgen's own generator of bindings takes functions for.
PYTHON_MODULES = frozenset({"nn", "fft", "linalg", "nested", "sparse", "special"})

# Remedies for torchgen's complaints, by a part of the message.
_REMEDIES = (
    (r"alias keys?\b", "keep one of the Composite keys"),
    (r"manual_kernel_registration", "leave `dispatch` or `manual_kernel_registration` out"),
    (r"autogen", "write that line, or write the variants out"),
    (r"new operator that aliases its inputs", "add that entry, with the tag `view_copy`"),
    (r"could not find any other variants", "add the functional form: the same schema without `out`"),
    (r"mutable", "mark each argument that is written to with `(a!)`, and return it as the in-place and out forms do"),
    (r"structured", "put `structured: True` on the out variant, and `structured_delegate: <name>.out` on the others"),
    (r"\bout\b", "write the out arguments behind the `*`, each as `Tensor(a!) out`, and return them in that order"),
)


@dataclass(frozen=True)
class Function:
    """An entry that torchgen understands."""

    entry: Entry
    native: NativeFunction
    kernels: dict[DispatchKey, dict[OperatorName, BackendMetadata]]

    @property
    def schema(self) -> FunctionSchema:
        """Its schema."""
        return self.native.func


def check_functions(entries: list[Entry], base: BaseOperators, findings: Findings) -> list[Function]:
    """Check each entry and how they fit together; return those that torchgen understands."""
    functions = []
    seen: dict[str, Entry] = {}
    for entry in entries:
        if _has_known_keys(entry, findings):
            function = _parse(entry, base, findings)
            name = entry.operator
            if name in seen:
                place = entry.value("func")
                findings.add(place, f"{name} is defined in line {seen[name].line} too", "give it an overload name")
            elif name in base.schemas:
                what = f"PyTorch has {base.schemas[name]} already"
                findings.add(entry.value("func"), what, "give yours another name, or another overload name")
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
    """The entries that torchgen does not understand: who speaks of these operators may be right."""
    understood = {id(function.entry) for function in functions}
    return [entry for entry in entries if id(entry) not in understood]


def root_of(operator: str) -> str:
    """The name that all variants of an operator share, the copying one of a view included."""
    name = operator.partition(".")[0]
    try:
        return BaseOperatorName.parse(name).base.removesuffix("_copy")
    except Exception:  # not a name: found elsewhere
        return name


def _has_known_keys(entry: Entry, findings: Findings) -> bool:
    for key in entry.fields:
        if key not in KEYS:
            findings.add(entry.place(key), f"torchgen knows no key `{key}`", nearest(key, KEYS))
    if "func" not in entry.fields:
        place = (entry.file, entry.line, 0)
        findings.add(place, "an entry needs the key `func`", "write `- func: name(Tensor self) -> Tensor`")
    return all(key in KEYS for key in entry.fields) and "func" in entry.fields


def _parse(entry: Entry, base: BaseOperators, findings: Findings) -> Function | None:
    text = entry.fields["func"]
    try:
        FunctionSchema.parse(text)
    except Exception as error:  # torchgen raises whatever assert, ValueError or RuntimeError fits
        offset, what = _fault_in_schema(str(text), error)
        findings.add(entry.value("func", offset), what, remedy(what, "compare it with a schema of PyTorch's own file"))
        return None
    if not _dispatch_is_known(entry, findings) or not _tags_are_known(entry, base, findings):
        return None
    try:
        native, kernels = NativeFunction.from_yaml(
            dict(entry.fields), Location(str(entry.file), entry.line), base.tags, set()
        )
    except Exception as error:
        what = str(error) or type(error).__name__
        findings.add(_place_of(entry, what), what, remedy(what, "compare it with an entry of PyTorch's own file"))
        return None
    return Function(entry, native, kernels)


def _fault_in_schema(text: str, error: Exception) -> tuple[int, str]:
    """Where in ``text`` the first part is that torchgen cannot parse, and what it says about it."""
    what = str(error) or f"not a schema: {text}"
    match = re.fullmatch(r"([^(]*)\((.*)\) -> (.*)", text)
    if not match:
        lacks = "a schema is `name(arguments) -> returns`"
        arrow = text.find("->")
        return max(arrow, 0), f"not a schema: {lacks}"
    for start, part in _parts(match[2], match.start(2)):
        if part in ("*", ""):
            continue
        try:
            Argument.parse(part)
        except Exception as fault:
            return start, f"torchgen cannot parse the argument `{part}`: {fault or type(fault).__name__}"
    returns = match[3]
    inner = returns[1:-1] if returns.startswith("(") and returns.endswith(")") else returns
    for start, part in _parts(inner, match.start(3) + (inner != returns)):
        try:
            Return.parse(part)
        except Exception as fault:
            return start, f"torchgen cannot parse the return `{part}`: {fault or type(fault).__name__}"
    return 0, what


def _parts(text: str, start: int) -> list[tuple[int, str]]:
    """The parts of a list between commas, as torchgen splits it, each with its place."""
    parts: list[tuple[int, str]] = []
    for part in re.split(r", (?![^\[(]*[\])])", text) if text else []:
        parts.append((text.find(part, parts[-1][0] - start + 1 if parts else 0) + start, part))
    return parts


def remedy(what: str, otherwise: str) -> str:
    """What to do about torchgen's complaint ``what``."""
    return next((todo for pattern, todo in _REMEDIES if re.search(pattern, what)), otherwise)


def _place_of(entry: Entry, what: str) -> Place:
    """The key that torchgen's message speaks of by its name or its value, or else the schema."""
    named = [key for key in entry.fields if key != "func" and key.removesuffix("s") in what]
    quoted = [
        key for key, value in entry.fields.items() if re.search(rf"\bnot an? \w+: {re.escape(str(value))}$", what)
    ]
    keys = [*quoted, *named]
    return entry.place(keys[0]) if keys else entry.value("func")


def _dispatch_is_known(entry: Entry, findings: Findings) -> bool:
    dispatch = entry.fields.get("dispatch")
    if dispatch is None:
        return True
    if not isinstance(dispatch, dict):
        findings.add(entry.place("dispatch"), "`dispatch` is no mapping", "write `Key: kernel` below it, a key a line")
        return False
    known = True
    names = {str(key) for key in dispatch_keys}
    seen: set[str] = set()
    for key in dispatch:
        for part in str(key).split(","):
            if part.strip() in seen:
                known = False
                what = f"the dispatch key `{part.strip()}` is there twice"
                findings.add(entry.place("dispatch"), what, "leave one out")
            seen.add(part.strip())
            if part.strip() not in names:
                known = False
                findings.add(
                    entry.place("dispatch"), f"there is no dispatch key `{part.strip()}`", nearest(part.strip(), names)
                )
    return known


def _tags_are_known(entry: Entry, base: BaseOperators, findings: Findings) -> bool:
    tags = entry.fields.get("tags", [])
    listed = tags if isinstance(tags, list) else [tags] if isinstance(tags, str) else []  # torchgen judges the rest
    unknown = [str(tag) for tag in listed if str(tag) not in base.tags]
    for tag in unknown:
        findings.add(entry.place("tags"), f"there is no tag `{tag}`", nearest(tag, base.tags))
    return not unknown


Check = Callable[[Function, list[Function], BaseOperators, Findings], None]


def _method_needs_self(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    if Variant.method in function.native.variants and function.schema.arguments.self_arg is None:
        what = f"{function.schema.name} is a method, but no argument is named `self`"
        findings.add(function.entry.place("variants"), what, "name the tensor `self`, or leave `method` out")


def _out_is_written(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    if function.schema.name.overload_name.split("_")[-1] == "out" and not function.schema.arguments.out:
        what = f"{function.schema.name} is named as an out variant, but writes to no argument behind the `*`"
        findings.add(function.entry.value("func"), what, "write `*, Tensor(a!) out) -> Tensor(a!)`", is_warning=True)


def _in_place_has_a_functional_twin(
    function: Function, functions: list[Function], base: BaseOperators, findings: Findings
) -> None:
    if function.schema.kind() != SchemaKind.inplace or not function.native.has_composite_implicit_autograd_kernel:
        return  # torchgen makes the twin of any other, and asks for it in `autogen:`
    name = function.schema.name.name.base
    others = [f.schema for f in functions] + base.schemas_like(name)
    twin = function.schema.signature()
    if not any(s.kind() == SchemaKind.functional and s.signature() == twin for s in others):
        what = f"{function.schema.name} has no functional twin"
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
        findings.add(place, f"structured_delegate: there is no operator {delegate} in this folder", todo)
    elif not target.native.structured:
        what = f"structured_delegate: {delegate} is not structured"
        findings.add(place, what, f"add `structured: True` to its entry, in line {target.entry.line}")


def _pointwise_is_said(function: Function, functions: list[Function], base: BaseOperators, findings: Findings) -> None:
    """TensorIterator computes element by element, and torch.compile relies on the tag to know."""
    delegate = function.native.structured_delegate
    kernel = next((f for f in functions if f.schema.name == delegate), function)
    reduces = any("dim" in a.name for a in kernel.schema.arguments.flat_all)
    iterates = kernel.native.structured_inherits == "TensorIteratorBase"
    if iterates and not reduces and "pointwise" not in function.native.tags:
        place = (function.entry.file, function.entry.line, 0)
        what = f"{function.schema.name} is a TensorIterator operator without the tag `pointwise`"
        findings.add(place, what, "add `tags: pointwise`, if it computes element by element", is_warning=True)


def _name_is_free(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    name = function.schema.name.name
    if name.dunder_method or str(name) in base.base_names:
        return
    place = function.entry.value("func")
    if keyword.iskeyword(str(name)):
        findings.add(place, f"`{name}` is a keyword of Python, which nobody could write", "give it another name")
    in_torch = Variant.function in function.native.variants and function.native.python_module is None
    if in_torch and str(name) in base.torch_names:
        findings.add(place, f"torch.{name} is something else already, which this would hide", "give it another name")
    if Variant.method in function.native.variants and str(name) in base.tensor_names:
        findings.add(place, f"Tensor.{name} is something else already, which this would hide", "give it another name")


def _module_exists(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    module = function.native.python_module
    if module is not None and module not in PYTHON_MODULES:
        what = f"there is no Python module `{module}` that operators are bound in"
        findings.add(function.entry.place("python_module"), what, nearest(module, PYTHON_MODULES))


def _binding_is_generated(function: Function, _: list[Function], base: BaseOperators, findings: Findings) -> None:
    if function.native.manual_cpp_binding:
        what = "manual_cpp_binding asks for a C++ function written by hand in PyTorch's sources"
        findings.add(function.entry.place("manual_cpp_binding"), what, "leave it out: the function is generated then")


_CHECKS: tuple[Check, ...] = (
    _method_needs_self,
    _out_is_written,
    _pointwise_is_said,
    _name_is_free,
    _module_exists,
    _binding_is_generated,
)
_CHECKS_AMONG_VARIANTS: tuple[Check, ...] = (_in_place_has_a_functional_twin, _delegate_exists)
