"""The entries for native_functions.yaml and derivatives.yaml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from torchgen.model import FunctionSchema, Location, NativeFunction

from ..core.errors import OperatorError
from .request import Request

# Modules whose functions all have the module's name as a prefix in native_functions.yaml, and no others do.
PREFIXED_MODULES = frozenset({"fft", "linalg", "special"})


def kernel_name(request: Request, func: FunctionSchema) -> str:
    """Return the name of the kernel of one variant.

    Without a dispatch table torchgen names the kernel, and omits the overload.
    """
    name = str(request.func.name.name) if request.kind == "composite" else request.name
    if func.is_out_fn():
        name += "_out"
    elif func.name.name.inplace:
        name += "_"
    return f"{name}_symint" if takes_symint(request, func) else name


def takes_symint(request: Request, func: FunctionSchema) -> bool:
    """Return whether the kernel has symbolic sizes; structured kernels never do."""
    return bool(func.has_symint()) and request.kind != "pointwise"


def function_entries(request: Request) -> str:
    """Return the entries for native_functions.yaml, one for each variant that torchgen does not generate."""
    written = request.functions
    if request.kind == "plain":
        written = [func for func in written if not func.is_out_fn()]
    return "\n".join("\n".join(_entry(request, func)) + "\n" for func in written)


def python_module(func: FunctionSchema) -> str | None:
    """Return the module that a function is bound in, from its name. As in PyTorch's own file, those functions have no
    methods.
    """
    prefix = func.name.name.base.partition("_")[0]
    return prefix if prefix in PREFIXED_MODULES and not func.name.name.inplace else None


def _entry(request: Request, func: FunctionSchema) -> list[str]:
    lines = [f"- func: {_scalar(str(func))}"]
    kernel = kernel_name(request, func)
    if request.kind == "pointwise" and not func.is_out_fn():
        lines.append(f"  structured_delegate: {request.out_func.name}")
    module = python_module(func)
    if module:
        lines.append(f"  python_module: {module}")
    if not func.is_out_fn():
        variants = ["method"] if func.name.name.inplace else ["function"]
        if not func.name.name.inplace and func.arguments.self_arg is not None and not module:
            variants.append("method")
        lines.append(f"  variants: {', '.join(variants)}")
    if request.kind == "pointwise":
        if func.is_out_fn():
            lines += ["  structured: True", "  structured_inherits: TensorIteratorBase"]
            lines += ["  dispatch:", f"    CPU: {kernel}"]
        lines.append("  tags: pointwise")
    elif request.kind == "plain":
        lines += ["  dispatch:", f"    CompositeExplicitAutograd: {kernel}"]
        # torchgen generates the out= variant of the in-place one, if there is one.
        if request.out and func == (request.inplace_func if request.inplace else request.func):
            lines.append(f"  autogen: {request.out_func.name}")
    elif takes_symint(request, func):
        lines += ["  dispatch:", f"    CompositeImplicitAutograd: {kernel}"]
    if func.arguments.has_generator_arg():
        lines.append("  tags: nondeterministic_seeded")
    return lines


def derivative_entry(request: Request) -> str:
    """Return the entry for derivatives.yaml; empty if the operator needs none."""
    if request.kind == "composite" or not request.is_differentiable:
        return ""
    lines = [f"# TODO: write the formulas. Until then, backward raises an error that names {request.func.name}."]
    lines.append(f"- name: {_scalar(str(request.func))}")
    for argument in request.tensors:
        refusal = "not_implemented_list" if argument.type.is_list_like() else "not_implemented"
        key = f"'{argument.name}'" if yaml.safe_load(argument.name) != argument.name else argument.name
        reason = ', "it has no formula yet"' if argument.type.is_list_like() else ""
        lines.append(f'  {key}: {refusal}("{request.func.name}"{reason})')
    return "\n".join(lines) + "\n"


def _scalar(schema: str) -> str:
    """Format ``schema`` in YAML: without quotes if that is parsed as the same text."""
    try:
        if yaml.safe_load(f"- func: {schema}\n") == [{"func": schema}]:
            return schema
    except yaml.YAMLError:
        pass
    return "'" + schema.replace("'", "''") + "'"


def parse_entries(text: str, tags: set[str]) -> list[NativeFunction]:
    """Run torchgen on entries.

    Raises:
        OperatorError: torchgen rejects one; with its message.
    """
    functions = []
    for entry in yaml.safe_load(text):
        schema = entry["func"]
        try:
            functions.append(NativeFunction.from_yaml(entry, Location("SCHEMA", 1), tags)[0])
        except Exception as error:  # torchgen raises AssertionError, ValueError or KeyError
            raise OperatorError(f"SCHEMA: torchgen rejects {schema}", cause=str(error)) from error
    return functions


def refuse_known(request: Request, ours: Path, theirs: Path) -> None:
    """Check that no variant has the name of an existing operator.

    Args:
        request: the requested operator.
        ours: the native folder's native_functions.yaml, which may not exist.
        theirs: PyTorch's native_functions.yaml.

    Raises:
        OperatorError: gives the place of each that exists.
    """
    names = [str(func.name) for func in request.functions]
    faults = [f"{ours}:{line}: the operator {name} already exists" for name, line in _known(ours, names)]
    faults += [f"PyTorch has an operator {name} ({theirs}:{line})" for name, line in _known(theirs, names)]
    if not request.func.name.overload_name:
        # If PyTorch has the name, the new operator must be an overload with its own name.
        base = re.escape(str(request.func.name.name))
        hit = re.search(rf"^- func: ({base}\.\w+)\(", theirs.read_text(encoding="utf-8"), re.M)
        if hit and not faults:
            faults.append(f"PyTorch has operators of this name: {hit[1]} and maybe more")
    if faults:
        raise OperatorError(
            "\n".join(faults), todo=f"choose another name, or that of an overload: {request.func.name.name}.mine(...)"
        )


def _known(path: Path, names: Sequence[str]) -> list[tuple[str, int]]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else [], 1):
        entry = re.match(r"\s*- func:\s*['\"]?([^\s(]+)\(", line)
        if entry and entry[1] in names:
            found.append((entry[1], number))
    return found
