"""Describe the new operators for Python: signatures in stub files, docstrings, and the lists that PyTorch keeps."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import yaml

from . import torchgen
from .bindings import named_returns, new_names
from .description import NAMESPACES, BoundName, Description, Namespace
from .operators import Selection, qualified_name
from .torchgen import NativeFunction, PythonSignatureGroup, PythonSignatureNativeFunctionPair, SchemaKind, is_bound_in
from .writing import is_auto_functionalized

# The Python signatures of all overloads of a function, by its name.
Signatures: TypeAlias = dict[str, list[PythonSignatureGroup]]


def describe(new: Selection, replaced: Mapping[str, Sequence[str]] | None = None) -> Description:
    """Describe the new operators, and the ``replaced`` parts of others, for docstrings, stubs and lists."""
    names = {(namespace, name): groups for namespace in NAMESPACES for name, groups in names_in(new, namespace).items()}
    # torch/__init__.py excludes such functions.
    listed = {key: groups for key, groups in names.items() if key[0].is_method or not key[1].startswith("__")}
    full = {f"{namespace.owner}.{name}": groups[-1] for (namespace, name), groups in listed.items()}
    bound = _bound({key: groups for key, groups in names.items() if not key[1].startswith("__")})
    known = {(f.namespace, f.func.name.name) for f in new.whole.functions if f not in new}
    groups = {namespace: new_signature_groups(new, namespace) for namespace in NAMESPACES}
    every = [group.signature for by_name in groups.values() for each in by_name.values() for group in each]
    return Description(
        operators=[qualified_name(f) for f in new.functions],
        entries={qualified_name(f): _entry(f) for f in new.functions},
        overloads=[qualified_name(f) for f in new.functions if (f.namespace, f.func.name.name) in known],
        pointwise=[qualified_name(f) for f in new.functions if needs_symbolic_meta(f)],
        functions={name: stand_in(group) for name, group in full.items()},
        public={
            b.public.removeprefix("torch."): f"{b.namespace.owner}.{b.name}"
            for b in bound
            if not b.namespace.is_method and not b.short.startswith("_")
        },
        factories=[name for name, group in full.items() if makes_tensor(group)],
        bound=bound,
        hints={namespace.name: hints(at) for namespace, at in groups.items() if at},
        return_types={each[0]: [each[1].rstrip()] for each in map(torchgen.returns_structseq_pyi, every) if each},
        replaced=replaced or {},
        annotated=[line for namespace in NAMESPACES if namespace.annotated for line in _annotated(new, namespace)],
        writing=[qualified_name(f) for f in new.functions if is_auto_functionalized(f)],
    )


def _entry(f: NativeFunction) -> str:
    """Return an entry of native_functions.yaml with what callers need to know."""
    space = "" if f.namespace == "aten" else f"{f.namespace}::"
    fields: dict[str, Any] = {"func": f"{space}{f.func}", "variants": ", ".join(sorted(v.name for v in f.variants))}
    if f.use_const_ref_for_mutable_tensors:
        fields["use_const_ref_for_mutable_tensors"] = True
    if f.cpp_no_default_args:
        fields["cpp_no_default_args"] = sorted(f.cpp_no_default_args)
    return yaml.safe_dump([fields], sort_keys=False, width=sys.maxsize)


def _annotated(new: Selection, namespace: Namespace) -> list[str]:
    """Return the new operators' arguments for the calls in PyTorch's test_overrides.py."""
    names = new_names(new, namespace)
    return [
        f"    {namespace.annotated}.{torchgen.gen_annotated_args(f)}\n"
        for f in new.functions
        if f.func.name.name in names and is_bound_in(f, namespace.name) and "generated" not in f.tags
    ]


@cache
def new_signature_groups(new: Selection, namespace: Namespace) -> Signatures:
    """Return the Python signatures of new operators in a namespace, in the types that stub files use. An out variant
    is part of its base's group.
    """
    pairs: dict[str, list[PythonSignatureNativeFunctionPair]] = {str(name): [] for name in new_names(new, namespace)}
    for f in new.whole.bindable:
        if str(f.func.name.name) in pairs and is_bound_in(f, namespace.name):
            with torchgen.native_function_manager(f):
                pair = PythonSignatureNativeFunctionPair(torchgen.signature(f, method=namespace.is_method, pyi=True), f)
            pairs[str(f.func.name.name)].append(pair)
    groups = {name: [g for g in torchgen.group_overloads(pairs[name]) if g.base in new] for name in sorted(pairs)}
    return {name: each for name, each in groups.items() if each}


def names_in(new: Selection, namespace: Namespace) -> Signatures:
    """Return the names in a namespace that the base does not have, each with the Python signatures of all overloads."""
    old = {str(f.func.name.name) for f in new.whole.functions if f not in new and is_bound_in(f, namespace.name)}
    return {name: groups for name, groups in new_signature_groups(new, namespace).items() if name not in old}


def makes_tensor(group: PythonSignatureGroup) -> bool:
    """Return whether this function creates a tensor on the device of its ``device`` argument."""
    name = group.signature.name
    follows_another = group.signature.method or name.endswith("_like") or name.startswith("new_")
    return torchgen.has_tensor_options(group.base) and not follows_another


def needs_symbolic_meta(f: NativeFunction) -> bool:
    """Return whether ``f`` is a functional or in-place pointwise operator with a structured kernel that returns one
    tensor.
    """
    returns_one_tensor = [str(r.type) for r in f.func.returns] == ["Tensor"]
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    return "pointwise" in f.tags and f.part_of_structured_group and returns_one_tensor and is_of_kind


def stand_in(group: PythonSignatureGroup) -> str:
    """Return a lambda with the Python signature of ``group``, as torch/overrides.py writes them."""
    signature = group.signature
    inputs = ["self"] if signature.method else []
    for argument in signature.arguments(skip_outputs=True):
        # In Python, the first argument of a function is `input` if the schema calls it `self`.
        name = "input" if argument.name == "self" and not signature.method else argument.name
        inputs.append(name if argument.default is None else f"{name}=None")
    if group.outplace is not None and not signature.method:
        inputs.append("out=None")
    return f"lambda {', '.join(inputs)}: -1" if inputs else "lambda: -1"


def hints(signatures: Signatures) -> dict[str, list[str]]:
    """Return the definitions of a stub file, by function name."""
    return {name: [text for group in groups for text in _hints(group)] for name, groups in signatures.items()}


# ATen/core/Reduction.h
_REDUCTIONS = {"at::Reduction::None": "0", "at::Reduction::Mean": "1", "at::Reduction::Sum": "2"}


def _hints(group: PythonSignatureGroup) -> list[str]:
    """Return the definition of ``group`` and, if a list may be given as several arguments, another one."""
    signature, skip = group.signature, group.outplace is None
    given = (signature.signature_str_pyi(skip_outputs=skip), signature.signature_str_pyi_vararg(skip_outputs=skip))
    # torchgen leaves some defaults in C++.
    in_python = re.compile(r"(?<== )\w+(::\w+)+")
    return [in_python.sub(lambda match: _REDUCTIONS.get(match[0], "..."), text) for text in given if text]


def _bound(documented: Mapping[tuple[Namespace, str], Sequence[PythonSignatureGroup]]) -> list[BoundName]:
    """Return the names that are documented. Names of the base keep their documentation."""
    public = {(p, n): f"{'torch.Tensor' if p.is_method else 'torch'}.{p.public_name(n)}" for p, n in documented}
    functions = {name: public[namespace, name] for namespace, name in documented if not namespace.is_method}
    methods = {name for namespace, name in documented if namespace.is_method}
    bound = []
    for (namespace, name), groups in documented.items():
        short, root = public[namespace, name].rpartition(".")[2], name.removesuffix("_")
        reference = ""
        if namespace.is_method and name in functions:
            reference = f"See :func:`{functions[name]}`"
        elif root != name and root in methods and namespace.is_method:
            reference = f"In-place version of :meth:`~Tensor.{root}`"
        elif root != name and root in functions:
            reference = f"In-place version of :func:`{functions[root]}`"
        lines = dict.fromkeys(f"{short}{signature_line(group)}" for group in groups)
        bound.append(
            BoundName(namespace, name, public[namespace, name], "\n".join(lines), reference, _derived(groups[0]))
        )
    return bound


class Parameter(NamedTuple):
    """A parameter of a function: its name, its type as docstrings write it, and its default in Python, if any."""

    name: str
    type: str
    default: str | None

    @property
    def line(self) -> str:
        """Its line in a docstring."""
        if self.default is None:
            return f"    {self.name} ({self.type})"
        line = f"    {self.name} ({self.type.removesuffix(' or None')}, optional)"
        if self.name == "out":
            return f"{line}: the output."
        return line if self.default == "None" else f"{line}: Default: ``{self.default}``."


def _definition(group: PythonSignatureGroup) -> tuple[list[Parameter], list[Parameter], ast.expr | None]:
    """Return the positional and the keyword parameters in the stub file, without the ``self`` of a method, and the type
    of the result.
    """
    (definition,) = ast.parse(_hints(group)[0]).body
    assert isinstance(definition, ast.FunctionDef)

    def parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
        kind = _type_text(argument.annotation) if argument.annotation else "object"
        return Parameter(argument.arg, kind, ast.unparse(default) if default else None)

    given = definition.args
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults]
    positional = list(map(parameter, given.args, defaults))[group.signature.method :]
    return positional, list(map(parameter, given.kwonlyargs, given.kw_defaults)), definition.returns


def _derived(group: PythonSignatureGroup) -> str:
    """Describe an operator from its schema."""
    parts = ["An operator that was added to this build of PyTorch."]
    for title, parameters in zip(("Args", "Keyword args"), _definition(group)[:2], strict=True):
        if parameters:
            parts.append("\n".join([f"{title}:", *(parameter.line for parameter in parameters)]))
    return "\n\n".join(parts)


def signature_line(group: PythonSignatureGroup) -> str:
    """Return the first line of a docstring after the name: ``(input, end, weight, *, out=None) -> Tensor``."""
    positional, keyword, returns = _definition(group)
    words, named = ([n if d is None else f"{n}={d}" for n, _, d in each] for each in (positional, keyword))
    if named_returns(group.base):
        result = f"({', '.join(f'{each.type} {each.name}' for each in group.base.func.returns)})"
    elif isinstance(returns, ast.Subscript) and isinstance(returns.slice, ast.Tuple):
        result = f"({', '.join(map(_type_text, returns.slice.elts))})"
    else:
        result = _type_text(returns) if returns else "None"
    return f"({', '.join([*words, *(['*'] if named else []), *named])}) -> {result}"


def _type_text(node: ast.expr) -> str:
    """Convert a type to the form of PyTorch's docstrings: ``_int | None`` becomes ``int or None``, and
    ``Number | _complex`` becomes ``Number``.
    """
    text = re.sub(r"\b_(?=[a-z])", "", ast.unparse(node))
    return text.replace(" | ", " or ").replace("Number or complex", "Number")
