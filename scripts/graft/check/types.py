"""Check the types in schemas: torchgen parses more of them than it can generate code for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from ..codegen.base_operators import known_operators
from ..codegen.torchgen import (
    Argument,
    FunctionSchema,
    ListType,
    NativeFunction,
    Return,
    dispatch_lambda_exprs,
    dispatch_lambda_return_str,
    native_function_manager,
    should_generate_py_binding,
    should_trace,
    signature,
)
from ..inputs.entries import Place
from . import Findings
from .schemas import Function, place_of_argument

# Types of arguments that no operator of PyTorch has, but whose code compiles (tests/codegen/test_types.py).
_ARGUMENTS = frozenset(
    {"float[]", "float[N]", "float[N]?", "MemoryFormat", "Scalar[N]", "Storage", "Tensor[N]", "Tensor?[N]"}
)

# PyTorch does not trace its own operators with these types. For others, the call of the tracer is ambiguous.
_UNTRACED = frozenset({"DeviceIndex"})

# The remedies for types of arguments, and for types of results.
_INSTEAD_OF_ARGUMENT = {
    "Tensor[]?": "write `Tensor[]`, in which an empty list means none, or a second overload without it",
    "Tensor?[]?": "write `Tensor?[]`, in which an empty list means none, or a second overload without it",
    "Scalar[]?": "write `Scalar[]`, in which an empty list means none, or a second overload without it",
    "str[]": "write one `str`, and split it in the kernel",
    "int[][]": "write `int[]` with all numbers, and another `int[]` with the lengths",
    "SymInt[][]": "write `SymInt[]` with all numbers, and another `SymInt[]` with the lengths",
    "bool[]": "write `int[]`, or a `bool` for each value",
    "bool[]?": "write `int[]?`, or a `bool` for each value",
    "bool[N]": "write a `bool` for each value; of PyTorch's operators only those named `*_backward` have it",
    "bool[N]?": "write `int[]?`, or a `bool` for each value",
    "Generator": "write `Generator?`",
    "SymBool": "write `bool`",
    "SymBool?": "write `bool?`",
    "DeviceIndex": "write `int`",
    "DeviceIndex?": "write `int?`",
    "Storage?": "write `Storage`",
    "Stream?": "write `Stream`",
}
_INSTEAD_OF_RESULT = {
    "Tensor?": "write `Tensor`, and return `Tensor()`, which is None in Python, where there is none",
    "Tensor?[]": "write `Tensor[]`, with `Tensor()` where there is none",
    "str": "return a number, or write a function in python/",
    "SymInt": "write `int`, which is a constant in graphs, or return a tensor",
}
_ONE_BY_ONE = "write an argument for each value, or numbers that stand for them"


def has_supported_types(function: Function, tree: Path, findings: Findings) -> bool:
    """Check that an operator's arguments and results are of types that operators of PyTorch in ``tree`` have, too."""
    before = len(findings.errors)
    has_binding = should_generate_py_binding(function.native)
    is_traced = should_trace(function.native)
    for name, what, todo in unsupported(function.schema, tree, has_binding=has_binding, is_traced=is_traced):
        place = place_of_argument(name, function.entry) if name else function.entry.value("func")
        _refuse(what, place, todo, findings)
    place = function.entry.value("func")
    if len(findings.errors) == before and has_binding and not _can_be_returned(function.native):
        types = [str(result.type) for result in function.schema.returns]
        otherwise = next(filter(None, map(_INSTEAD_OF_RESULT.get, types)), "return tensors, or one number")
        todo = "return one `Tensor[]`" if {*types} <= {"Tensor", "Tensor[]"} else otherwise
        _refuse(f"a Python function with the results ({', '.join(types)})", place, todo, findings)
    is_factory = function.native.category_override == "factory"  # checked with its arguments
    is_bound = has_binding and not is_factory and len(findings.errors) == before
    if is_bound and (error := _error_of_binding(function.native)):
        code, what = "invalid-entry", error.partition("\n")[0][:200]
        todo = "compare it with an entry of PyTorch's own file"
        if "argument named requires_grad is reserved" in error:
            code = "argument-name"
            what = "torchgen adds an argument `requires_grad` to factories, and lets no other have this name"
            todo = "give the argument another name, such as `needs_grad`"
        if "tensor_options_args" in error:
            code = "factory-arguments"
            what = f"{function.schema.name} returns a tensor and takes none, so torchgen takes it for a factory"
            todo = "add `category_override: dummy`, or take dtype, layout, device and pin_memory as torch.empty does"
        findings.add(code, place, what, todo)
    return len(findings.errors) == before


def unsupported(
    schema: FunctionSchema, tree: Path, *, has_binding: bool = True, is_traced: bool = True
) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each argument, or an empty name for a result, whose type no operator of PyTorch in ``tree``
    has, with a description and a remedy.
    """
    arguments, results = _known_forms(tree, has_binding)
    for argument in schema.arguments.flat_all:
        form = form_of(argument)
        if form not in arguments | _ARGUMENTS or (form in _UNTRACED and is_traced):
            todo = _INSTEAD_OF_ARGUMENT.get(form, _other(form))
            yield argument.name, f"an argument of type {argument.type}", todo
        elif (default := argument.default) not in (None, "None") and _is_list_without_defaults(argument):
            what = f"the default `{default}` of `{argument.name}`: lists of integers alone can have one"
            yield argument.name, what, "leave it out, or take an empty list for it in the kernel"
    for result in schema.returns:
        if (form := form_of(result)) not in results:
            todo = _INSTEAD_OF_RESULT.get(form, "return tensors, or one number")
            yield "", f"a result of type {result.type}", todo


def _can_be_returned(f: NativeFunction) -> bool:
    """Return whether torchgen has code that returns these results to Python."""
    try:
        dispatch_lambda_return_str(f)
    except RuntimeError:
        return False
    return True


def _error_of_binding(f: NativeFunction) -> str:
    """Return torchgen's error when it makes the Python function; empty if there is none."""
    try:
        with native_function_manager(f):
            dispatch_lambda_exprs(signature(f), f)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def _refuse(what: str, place: Place, todo: str, findings: Findings) -> None:
    findings.add("unsupported-type", place, f"PyTorch's code generator does not support {what}", todo)


def _is_list_without_defaults(argument: Argument) -> bool:
    """Return whether Python's argument parser has no defaults for this list (FunctionParameter::set_default_str)."""
    return isinstance(argument.type, ListType) and not re.match(r"(int|SymInt)\[", str(argument.type))


def _other(form: str) -> str:
    if "torch.classes" in form:
        return "write what the object holds: tensors, numbers and strings"
    return _ONE_BY_ONE if "[" in form else "write tensors, numbers and strings"


def form_of(each: Argument | Return) -> str:
    """Return a type without the length of a list: ``int[N]`` for ``int[2]``."""
    return re.sub(r"\[\d+\]", "[N]", str(each.type))


@functools.cache
def _known_forms(tree: Path, has_binding: bool) -> tuple[set[str], set[str]]:
    """Return the types of arguments and of results that PyTorch's own operators have. With ``has_binding``, only
    operators with a Python function count for arguments.
    """
    functions = known_operators(tree).functions
    bound = [f for f in functions if should_generate_py_binding(f)] if has_binding else functions
    arguments = {form_of(argument) for f in bound for argument in f.func.arguments.flat_all}
    return arguments, {form_of(result) for f in functions for result in f.func.returns}
