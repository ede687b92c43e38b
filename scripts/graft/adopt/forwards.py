"""The files of an adopted folder: entries, and the kernels that call the extension's operators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..codegen.torchgen import FunctionSchema, NativeSignature, cpp, local
from ..new.rendering import environment_in
from .plan import Adopted
from .schema import Schema

_TEMPLATES = environment_in(Path(__file__).parent / "templates")
# torchgen wants the kernel of a composite operator to have its name, unless it takes SymInt.
_ENTRY = """- func: {schema}
  variants: {variants}
"""
_WITH_SYMINT = (
    _ENTRY
    + """  dispatch:
    CompositeImplicitAutograd: {kernel}
"""
)


class Forward(NamedTuple):
    """A kernel that calls an operator of the extension.

    Args:
        variable: the C++ variable of the operator.
        name: the operator's name with the namespace.
        overload: its overload.
        schema: its schema, as the dispatcher prints it.
        declaration: the kernel's declaration.
        theirs: the C++ signature of the operator's kernels.
        arguments: what is passed on.
        written: the arguments that are written.
        tensors: the arguments that hold tensors.
        returns: the C++ type of the result; empty if there is none, or if what is written is returned.
        kept: the positions of the call's results that are returned; None for all.
        returned: the expression of the written arguments that are returned; empty if the call's result is.
    """

    variable: str
    name: str
    overload: str
    schema: str
    declaration: str
    theirs: str
    arguments: str
    written: list[str]
    tensors: list[str]
    returns: str
    kept: tuple[int, ...] | None
    returned: str


def files_of(plan: Sequence[Adopted], modules: Sequence[str], libraries: Sequence[str]) -> dict[str, str]:
    """Return the texts of a folder's files, by name."""
    entries = [each for each in plan if each.schema and not each.refusal]
    forwards = [forward for each in entries for forward in _forwards(each)]
    package = modules[0].replace(".", "_")
    values = {
        "module": modules[0],
        "scope": f"adopted_{package}",
        "libraries": libraries,
        "forwards": forwards,
        "writes": any(forward.written for forward in forwards),
    }
    texts = {
        f"{package}_adopted.h": _TEMPLATES.get_template("adopted.h.in").render(values),
        f"{package}_forwards.cpp": _TEMPLATES.get_template("forwards.cpp.in").render(values),
    }
    head = f"# The operators of the Python package {modules[0]}, which `graft adopt` wrote.\n\n"
    return {"native_functions.yaml": head + "\n".join(map(_entry, entries)), **texts}


def _entry(adopted: Adopted) -> str:
    schema = adopted.schema
    assert schema is not None
    variants = "function, method" if adopted.is_method else "function"
    return (_WITH_SYMINT if _has_symint(schema) else _ENTRY).format(
        schema=schema, variants=variants, kernel=_kernel_with_symint(schema)
    )


def _has_symint(schema: Schema) -> bool:
    return any(each.base == "SymInt" for each in (*schema.arguments, *schema.results))


def _kernel_with_symint(schema: Schema) -> str:
    return f"{schema.operator.replace('.', '_')}_symint"


def _forwards(adopted: Adopted) -> Iterator[Forward]:
    """Yield the kernel of an operator. Of a schema that torchgen cannot read there is none; the check reports it."""
    schema = adopted.schema
    assert schema is not None
    try:
        function = FunctionSchema.parse(str(schema))
    except (AssertionError, RuntimeError, ValueError):
        return
    with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        yield _forward(adopted, schema, function)


def _forward(adopted: Adopted, schema: Schema, function: FunctionSchema) -> Forward:
    operator = adopted.operator
    signature = NativeSignature(function, symint=_has_symint(schema))
    kernel = _kernel_with_symint(schema) if _has_symint(schema) else cpp.name(function)
    types = {binding.name: binding.nctype.cpp_type() for binding in signature.arguments()}
    returns = signature.returns_type().cpp_type()
    returned = [each.name for each in schema.arguments if each.is_written and adopted.kept == () and "&" in returns]
    return Forward(
        variable=re.sub(r"\W", "_", f"{operator.full.rpartition('::')[2]}_of_{operator.namespace}"),
        name=operator.name,
        overload=operator.overload,
        schema=operator.schema.replace("\\", "\\\\").replace('"', '\\"'),
        declaration=signature.defn(kernel),
        theirs=operator.signature or _natural(adopted, types),
        arguments=", ".join(adopted.arguments),
        written=[each.name for each in schema.written],
        tensors=[each.name for each in schema.arguments if each.base == "Tensor"],
        returns="" if returned or returns == "void" else returns,
        kept=adopted.kept,
        returned=_all_of(returned, returns),
    )


def _all_of(names: Sequence[str], type_: str) -> str:
    """Return the expression that returns written arguments."""
    if len(names) < 2:
        return "".join(names)
    return f"{type_}({', '.join(names)})"


def _natural(adopted: Adopted, types: dict[str, str]) -> str:
    """Return a C++ signature for an operator whose kernels have none."""
    results = adopted.results
    returned = results[0] if len(results) == 1 else f"std::tuple<{', '.join(results)}>" if results else "void"
    return f"{returned} ({', '.join(types[name] for name in adopted.arguments)})"
