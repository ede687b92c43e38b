"""Check entries of native_functions.yaml: each alone, its names and its keys, and all together."""

from __future__ import annotations

import keyword

from ..codegen.description import PYTHON_MODULES
from ..codegen.torchgen import SKIP_PYTHON_BINDINGS, SchemaKind, Variant, cpp, should_generate_py_binding
from ..codegen.writing import is_optional
from ..cpp.syntax import is_keyword
from ..inputs.entries import REPLACE, Entry
from . import Findings, line_of, nearest
from .base import BaseOperators
from .groups import check_groups
from .schemas import Function, parse_entry, place_of_argument
from .writing import refuse_optional


def check_functions(entries: list[Entry], base: BaseOperators, findings: Findings) -> list[Function]:
    """Check each entry and how they fit together. Return the valid ones."""
    functions = []
    seen: dict[str, Entry] = {}
    for entry in entries:
        function, name = parse_entry(entry, base, findings), entry.operator
        if name in seen:
            other = line_of(seen[name].file, seen[name].line, entry.file)
            todo = "delete one of the two" if seen[name].schema == entry.schema else "give it an overload name"
            if seen[name].file != entry.file:
                todo += ", or give one another name (`graft adopt --prefix`, for a folder that adopt wrote)"
            findings.add("duplicate-entry", entry.value("func"), f"{name} is also defined in {other}", todo)
        elif "func" in entry.fields and REPLACE not in entry.fields and name in base.schemas:
            owner = base.fields(name).get("structured_delegate", name)
            todo = f"choose another name; `replace: True` in an entry of {owner} replaces PyTorch's kernels"
            findings.add("operator-exists", entry.value("func"), f"PyTorch already has {base.schemas[name]}", todo)
        if "func" in entry.fields:
            seen.setdefault(name, entry)
        if function:
            functions.append(function)
    added = [function for function in functions if not function.entry.is_replacing]
    by_name = {str(function.schema.name): function for function in reversed(added)}
    for function in added:
        _check_names(function, base, findings)
        _check_arguments(function, findings)
        _check_keys(function, by_name.get(str(function.native.structured_delegate), function), findings)
    check_groups([entry for entry in entries if not entry.is_replacing], added, base, findings)
    return functions


def _check_names(function: Function, base: BaseOperators, findings: Findings) -> None:
    """Check that the operator's name is free in Python."""
    name = function.schema.name.name
    if name.dunder_method or str(name) in base.base_names:
        return
    what, native = "", function.native
    in_torch = Variant.function in native.variants and native.python_module is None
    if keyword.iskeyword(str(name)):
        what = f"`{name}` is a Python keyword, so it cannot be used in a call"
    elif in_torch and str(name) in base.torch_names:
        what = f"torch.{name} already exists, and would be hidden"
    elif Variant.method in native.variants and str(name) in base.tensor_names:
        what = f"Tensor.{name} already exists, and would be hidden"
    if what:
        findings.add("name-taken", function.entry.value("func"), what, "give it another name")
    pattern = next((p.pattern.strip("^$") for p in SKIP_PYTHON_BINDINGS if p.match(cpp.name(native.func))), "_backward")
    is_usual = "_backward" in pattern or str(name).startswith("_") or function.schema.kind() == SchemaKind.out
    if not is_usual:
        what = f"Python has no function or method {name}, since torchgen makes none for names like `{pattern}`"
        todo = f"give it another name, or call torch.ops.aten.{name}"
        findings.warn("no-python-function", function.entry.value("func"), what, todo)


def _check_arguments(function: Function, findings: Findings) -> None:
    """Check the names of the arguments, and the defaults that have another meaning in Python."""
    seen: set[str] = set()
    is_bound = should_generate_py_binding(function.native)
    is_function = is_bound and Variant.function in function.native.variants
    for argument in function.schema.arguments.flat_all:
        name, code, what, todo = argument.name, "argument-name", "", "give the argument another name"
        if name in seen:
            what = f"two arguments are named `{name}`"
        elif keyword.iskeyword(name):
            what = f"`{name}` is a Python keyword, so it cannot be used in a call"
        elif is_keyword(name):
            what = f"`{name}` is a word of C++, so no variable can have this name"
        elif name == "input" and is_function and function.schema.arguments.self_arg is not None:
            what = "in Python, the argument `self` of a function is called `input`, too"
        elif argument.default == "Mean" and is_bound and function.schema.kind() == SchemaKind.functional:
            # Python's argument parser reads at::Reduction::Mean with atol (set_default_str in
            # torch/csrc/utils/python_arg_parser.cpp), so torch.hinge_embedding_loss(x, y) does not reduce, either.
            code, what = "default-mean", f"the default Mean of `{name}` is 0, no reduction, when called from Python"
            todo = f"write `{name}=1`: the same schema, and the mean"
        if what:
            findings.add(code, place_of_argument(name, function.entry), what, todo, is_warning=code == "default-mean")
        seen.add(name)


def _check_keys(function: Function, kernel: Function, findings: Findings) -> None:
    """Check the other keys of an entry. ``kernel`` is the entry with the kernel of ``function``."""
    entry, native, schema = function.entry, function.native, function.schema
    refuse_optional(schema, entry, findings)
    self_arg = schema.arguments.self_arg
    if Variant.method in native.variants and self_arg is None:
        what = f"{schema.name} is a method, but no argument is named `self`"
        findings.add("method-self", entry.place("variants"), what, "name the tensor `self`, or leave `method` out")
    elif Variant.method in native.variants and self_arg and is_optional(self_arg.argument):
        what = f"{schema.name} is a method, but `self` may be None"
        findings.add("method-self", entry.place("variants"), what, "leave `method` out")
    if native.python_module is not None and native.python_module not in PYTHON_MODULES:
        what = f"operators cannot be bound in a Python module `{native.python_module}`"
        findings.add("unknown-value", entry.place("python_module"), what, nearest(native.python_module, PYTHON_MODULES))
    is_factory = native.category_override == "factory" and not schema.is_out_fn()
    if is_factory and schema.arguments.tensor_options is None:
        what = f"{schema.name} is no factory: it does not take dtype, layout, device and pin_memory"
        todo = "leave it out, or add these arguments"
        findings.add("factory-arguments", entry.place("category_override"), what, todo)
    is_called = schema.arguments.tensor_options or any(a.type.is_tensor_like() for a in schema.arguments.flat_all)
    if entry.kernels and not (is_called or entry.is_replacing) and not any("Composite" in key for key in entry.kernels):
        what = f"{schema.name} takes no tensor, so no call reaches its kernel for {next(iter(entry.kernels))}"
        todo = f"write `CompositeExplicitAutograd: {next(iter(entry.kernels.values()))}`"
        findings.warn("unreachable-kernel", entry.place("dispatch"), what, todo)
    if native.manual_cpp_binding:
        what = "manual_cpp_binding needs a handwritten C++ function in PyTorch's sources"
        todo = "leave it out; the function is then generated"
        findings.add("manual-binding", entry.place("manual_cpp_binding"), what, todo)
    if schema.name.overload_name.split("_")[-1] == "out" and not schema.arguments.out:
        what = f"{schema.name} has the name of an out variant, but mutates no argument after the `*`"
        findings.warn("out-arguments", entry.value("func"), what, "write `*, Tensor(a!) out) -> Tensor(a!)`")
    # TensorIterator is elementwise, and torch.compile relies on the tag.
    reduces = any("dim" in a.name for a in kernel.schema.arguments.flat_all)
    iterates = kernel.native.structured_inherits == "TensorIteratorBase"
    if iterates and not reduces and "pointwise" not in native.tags:
        what = f"{schema.name} is a TensorIterator operator without the tag `pointwise`"
        todo = "add `tags: pointwise` if it is elementwise"
        findings.warn("pointwise-tag", (entry.file, entry.line, 0), what, todo)
    keyword_only = [each for each in schema.arguments.flat_kwarg_only if each.type.is_tensor_like()]
    if "pointwise" in native.tags and keyword_only:
        name = keyword_only[0].name
        what = f"{schema.name} is pointwise with the keyword-only tensor `{name}`, so DTensor refuses it"
        findings.warn("pointwise-tag", place_of_argument(name, entry), what, "move it before the `*`")
