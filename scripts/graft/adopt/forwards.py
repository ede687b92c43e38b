"""Generate the files of an adopted folder: entries, and the kernels that call the extension's operators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..codegen.torchgen import FunctionSchema, NativeSignature, cpp, local
from ..deliver.editor import schema_line
from ..inputs.native import DERIVATIVES, FUNCTIONS
from ..new.rendering import environment_in
from .brackets import split
from .plan import DIFFERENTIABLE, SEEDED, Adopted
from .schema import Schema, read_schema

_TEMPLATES = environment_in(Path(__file__).parent / "templates")
# torchgen requires that a composite operator's kernel has the operator's name, unless it takes SymInt.
_ENTRY = """- func: {schema}
  variants: {variants}
"""
_DISPATCH = "  dispatch:\n"
_KERNEL = "    {key}: {kernel}\n"
_COMPOSITE = "CompositeImplicitAutograd"
# torch.library gives its operators this tag. Without it, torch.compile may change the strides of inputs.
_EXACT = "needs_exact_strides"
# torchgen treats an operator that returns a tensor and takes none as a factory, which must take dtype and device.
_NO_FACTORY = "  category_override: dummy\n"

# The types that the dispatcher converts SymInt to, for kernels that take integers (c10::remove_symint).
_UNPACKED = re.compile(r"long|std::optional<long>|c10::(Optional)?ArrayRef<long>")


# The number of kernels in one source. The sources of a large extension are compiled in parallel.
_AT_ONCE = 64


class Forward(NamedTuple):
    """A kernel that calls an operator of the extension.

    Args:
        variable: the C++ variable of the operator.
        operator: the adopted operator's name with its overload.
        name: the extension's operator, with its namespace.
        overload: its overload.
        schema: its schema, as the dispatcher prints it.
        declaration: the kernel's declaration.
        theirs: the C++ signature of the operator's kernels.
        key: the dispatch key whose kernel is called; empty for the operator itself.
        arguments: the arguments of the call, in C++.
        written: the arguments that the operator writes.
        tensors: the arguments that hold tensors.
        returns: the C++ type of the result; empty if there is none, or if written arguments are returned.
        kept: the positions of the call's results that are returned; None for all.
        returned: the expression that returns written arguments; empty if the call's result is returned.
        alias: the operator's kind of alias analysis; empty if it follows from the schema.
    """

    variable: str
    operator: str
    name: str
    overload: str
    schema: str
    declaration: str
    theirs: str
    key: str
    arguments: str
    written: list[str]
    tensors: list[str]
    returns: str
    kept: tuple[int, ...] | None
    returned: str
    alias: str


def files_of(
    plan: Sequence[Adopted], modules: Sequence[str], libraries: Sequence[str], functions: str
) -> dict[str, str]:
    """Return the texts of a folder's files, by name. ``functions`` is the module that registers pybind11 functions."""
    entries = [each for each in plan if each.is_entry and each.schema]
    forwards = [forward for each in entries for forward in _forwards(each)]
    package = modules[0].replace(".", "_")
    values = {
        "module": modules[0],
        "modules": [*modules, *([f"torch._adopted_{package}"] if functions else [])],
        "scope": f"adopted_{package}",
        "libraries": libraries,
        "forwards": forwards,
        "kinds": any(each.alias for each in forwards),
        "writes": any(forward.written for forward in forwards),
    }
    once = [each for each in forwards if each.key != "CUDA"]
    cuda = [each for each in forwards if each.key == "CUDA"]
    parts = range(0, len(once), _AT_ONCE)
    sources = {f"{package}_forwards{i // _AT_ONCE or ''}.cpp": once[i : i + _AT_ONCE] for i in parts}
    sources |= {f"cuda/{package}_forwards.cpp": cuda} if cuda else {}
    return {
        str(FUNCTIONS): _head(FUNCTIONS, modules) + "\n".join(map(_entry, entries)),
        f"{package}_adopted.h": _TEMPLATES.get_template("adopted.h.in").render(values),
        **{name: _source({**values, "forwards": some}) for name, some in sources.items()},
        **_derivatives(entries, modules),
        **_fakes(entries, modules[0]),
        **({f"python/_adopted_{package}.py": functions} if functions else {}),
    }


def _source(values: dict[str, Any]) -> str:
    """Return the text of a C++ source with the kernels in ``values``."""
    kinds = sorted({each.alias for each in values["forwards"]} - {""})
    named = {kind: sorted({each.operator for each in values["forwards"] if each.alias == kind}) for kind in kinds}
    operators = {each.variable: each for each in values["forwards"]}
    values = {**values, "kinds": named, "operators": operators.values()}
    values["writes"] = any(each.written for each in values["forwards"])
    return _TEMPLATES.get_template("forwards.cpp.in").render(values)


def _head(file: Path, modules: Sequence[str]) -> str:
    """Return the first lines of a YAML file. Editors find its schema by one."""
    return f"{schema_line(file.name)}# The operators of the Python package {modules[0]}, which `graft adopt` wrote.\n\n"


def _derivatives(entries: Sequence[Adopted], modules: Sequence[str]) -> dict[str, str]:
    """Return derivatives.yaml for the operators that take over the kernels of an operator with a gradient."""
    names = {each.operator.full: each.schema.name for each in entries if each.schema}
    own = [each for each in entries if each.own and {*each.operator.keys} & DIFFERENTIABLE]
    formulas = [f"- name: {each.schema}\n{_formula(each, names)}" for each in own]
    return {str(DERIVATIVES): _head(DERIVATIVES, modules) + "\n".join(formulas)} if formulas else {}


def _formula(adopted: Adopted, names: Mapping[str, str]) -> str:
    """Return the formulas of an operator's gradients, or TODOs. ``names`` has the entry's name for each operator."""
    schema, theirs = adopted.schema, read_schema(adopted.operator.schema)
    assert schema is not None
    if adopted.operator.formula:
        differentiable, called, arguments = adopted.operator.formula
        name = called.partition("::")[2].partition(".")[0] if called.startswith("aten::") else names.get(called)
        ours = {old.name: new for old, new in zip(theirs.arguments, adopted.arguments, strict=True)}
        if name:
            given = ", ".join(ours.get(each, each) for each in arguments)
            return f"  {', '.join(ours[each] for each in differentiable)}: at::{name}({given})\n"
    tensors = [each for each in schema.arguments if each.base == "Tensor" and not each.lists.startswith("?")]
    lists = {True: "not_implemented_list", False: "not_implemented"}
    lines = (f'  {each.name}: {lists[bool(each.lists)]}("{schema.operator}")' for each in tensors)
    return "".join(f"{line}  # TODO: the formula of its gradient\n" for line in lines)


def _fakes(entries: Sequence[Adopted], module: str) -> dict[str, str]:
    """Return the Python file that gives fake implementations to operators that take over kernels."""
    with_fake = [each for each in entries if each.own and "Meta" in each.operator.in_python]
    own = {f"aten::{each.schema.operator}": each.operator.full for each in with_fake if each.schema}
    if not own:
        return {}
    return {"python/_meta_registrations.py": _TEMPLATES.get_template("fakes.py.in").render(own=own, module=module)}


def _entry(adopted: Adopted) -> str:
    schema = adopted.schema
    assert schema is not None
    variants = "function, method" if adopted.is_method else "function"
    makes_tensor = any(each.base == "Tensor" for each in schema.results)
    is_factory = makes_tensor and not any(each.base == "Tensor" for each in schema.arguments)
    keys = adopted.own or ((_COMPOSITE,) if _has_symint(schema) else ())
    tags = [*([_EXACT] if adopted.own else []), *([SEEDED] if adopted.is_seeded else [])]
    kernels = [_KERNEL.format(key=key, kernel=_kernel(schema, key)) for key in keys]
    return "".join(
        (
            _ENTRY.format(schema=schema, variants=variants),
            _NO_FACTORY if is_factory else "",
            *([_DISPATCH, *kernels] if kernels else []),
            f"  tags: [{', '.join(tags)}]\n" if tags else "",
        )
    )


def _has_symint(schema: Schema) -> bool:
    return any(each.base == "SymInt" for each in (*schema.arguments, *schema.results))


def _kernel(schema: Schema, key: str) -> str:
    """Return the name of an operator's kernel for a dispatch key, as the entry's ``dispatch`` has it."""
    of_key = "" if key == _COMPOSITE else f"_{key.lower()}"
    return f"{schema.operator.replace('.', '_')}{of_key}{'_symint' if _has_symint(schema) else ''}"


def _forwards(adopted: Adopted) -> Iterator[Forward]:
    """Yield the kernels of an operator; none if torchgen cannot parse its schema, which the check reports."""
    schema = adopted.schema
    assert schema is not None
    given = {"use_const_ref_for_mutable_tensors": False, "use_ilistref_for_tensor_lists": False}
    with suppress(AssertionError, RuntimeError, ValueError), local.parametrize(**given):
        function = FunctionSchema.parse(str(schema))
        for key in adopted.own or (_COMPOSITE,):
            has_table = adopted.own or _has_symint(schema)
            kernel = _kernel(schema, key) if has_table else cpp.name(function)
            yield _forward(adopted, schema, function, kernel, key if adopted.own else "")


def _forward(adopted: Adopted, schema: Schema, function: FunctionSchema, kernel: str, key: str) -> Forward:
    operator = adopted.operator
    signature = NativeSignature(function, symint=_has_symint(schema))
    types = {binding.name: binding.nctype.cpp_type() for binding in signature.arguments()}
    returns = signature.returns_type().cpp_type()
    returned = [each.name for each in schema.arguments if each.is_written and adopted.kept == () and "&" in returns]
    return Forward(
        variable=f"{operator.full.rpartition('::')[2].replace('.', '_dot_')}_of_{operator.namespace}",
        operator=schema.operator,
        name=operator.name,
        overload=operator.overload,
        schema=operator.schema.replace("\\", "\\\\").replace('"', '\\"'),
        declaration=signature.defn(kernel),
        theirs=_theirs(adopted, schema) or _natural(adopted, types),
        key=key,
        arguments=", ".join(adopted.arguments),
        written=[each.name for each in schema.arguments if each.is_written or each.is_written_untold],
        tensors=[each.name for each in schema.arguments if each.base == "Tensor"],
        returns="" if returned or returns == "void" else returns,
        kept=adopted.kept,
        returned=_all_of(returned, returns),
        alias=_alias(adopted, schema),
    )


def _alias(adopted: Adopted, schema: Schema) -> str:
    """Return an operator's kind of alias analysis; empty if it follows from the schema."""
    if any(each.is_written_untold for each in schema.arguments):
        return "CONSERVATIVE"
    kind = adopted.operator.alias
    return "" if kind == "FROM_SCHEMA" or any(each.alias for each in (*schema.arguments, *schema.results)) else kind


def _all_of(names: Sequence[str], type_: str) -> str:
    """Return the C++ expression that returns written arguments."""
    if len(names) < 2:
        return "".join(names)
    return f"{type_}({', '.join(names)})"


def _theirs(adopted: Adopted, schema: Schema) -> str:
    """Return the C++ signature of the operator's kernels, with SymInt where the schema has it.

    Empty if no kernel is in C++, or if a kernel takes types that the dispatcher does not convert SymInt to.
    """
    signature = adopted.operator.signature
    if not signature or "SymInt" in signature or not _has_symint(schema):
        return signature
    returned, _, rest = signature.partition(" (")
    values = {each.name: each for each in schema.arguments}
    types = split(rest.removesuffix(")"))
    if not rest or len(types) != len(adopted.arguments):
        return ""
    for position, name in enumerate(adopted.arguments):
        if values[name].base == "SymInt":
            if not _UNPACKED.fullmatch(types[position]):
                return ""
            types[position] = types[position].replace("long", "c10::SymInt")
    return f"{returned} ({', '.join(types)})"


def _natural(adopted: Adopted, types: dict[str, str]) -> str:
    """Return a C++ signature made of the schema, for an operator whose kernels have no C++ signature."""
    results = adopted.results
    returned = results[0] if len(results) == 1 else f"std::tuple<{', '.join(results)}>" if results else "void"
    return f"{returned} ({', '.join(types[name] for name in adopted.arguments)})"
