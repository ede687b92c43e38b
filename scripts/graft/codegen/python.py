"""The Python side of the new operators: signatures for stub files, docstrings, and the lists that PyTorch keeps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from torchgen.api.python import (
    PythonSignatureGroup,
    PythonSignatureNativeFunctionPair,
    has_tensor_options,
    returns_structseq_pyi,
    signature,
)
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, SchemaKind
from torchgen.packaged.autograd.gen_annotated_fn_args import gen_annotated_args
from torchgen.packaged.autograd.gen_python_functions import group_overloads

from .bindings import belongs, named_returns, new_names
from .description import PLACES, Bound, Description, Place
from .operators import Operators, qualified_name

# An argument and its default.
Argument = tuple[ast.arg, ast.expr | None]


@dataclass(frozen=True)
class Name:
    """A name that new operators are bound to and the base has no operators for, with all its overloads.

    Args:
        place: the class or module of ``torch._C``.
        name: its name there.
        groups: its Python signatures.
    """

    place: Place
    name: str
    groups: Sequence[PythonSignatureGroup]

    @property
    def public(self) -> str:
        """The public name: ``torch.fft.x`` if ``name`` is ``fft_x``."""
        return f"{'torch.Tensor' if self.place.is_method else 'torch'}.{self.place.public_name(self.name)}"


def describe(operators: Operators) -> Description:
    """Describe the new operators for the writers of docstrings, stubs and lists."""
    names = [name for place in PLACES for name in names_at(operators, place)]
    # torch/__init__.py excludes such functions.
    listed = [name for name in names if name.place.is_method or not name.name.startswith("__")]
    full = {f"{name.place.owner}.{name.name}": name for name in listed}
    open_to_all = [(full_name, n) for full_name, n in full.items() if not n.place.is_method and not is_private(n)]
    new, old = operators.new_functions, [f for f in operators.functions if not operators.is_new(f)]
    known = {(f.namespace, f.func.name.name) for f in old}
    groups = {place.name: new_signature_groups(operators, place) for place in PLACES}
    named = [returns_structseq_pyi(group.signature) for each in groups.values() for group in each]
    return Description(
        operators=[qualified_name(f) for f in new],
        overloads=[qualified_name(f) for f in new if (f.namespace, f.func.name.name) in known],
        pointwise=[qualified_name(f) for f in new if needs_symbolic_meta(f)],
        functions={full_name: stand_in(name.groups[-1]) for full_name, name in full.items()},
        public={name.place.public_name(name.name): full_name for full_name, name in open_to_all},
        factories=[full_name for full_name, name in full.items() if makes_tensor(name.name, name.groups[-1])],
        bound=_bound(names),
        hints={name: hints(each) for name, each in groups.items() if each},
        return_types={each[0]: [each[1].rstrip()] for each in named if each},
        annotated=_annotated(operators),
    )


@cache
def names_at(operators: Operators, place: Place) -> list[Name]:
    """Return the names at ``place`` that the base does not have."""
    old = {str(f.func.name.name) for f in operators.functions if not operators.is_new(f) and belongs(f, place)}
    groups: dict[str, list[PythonSignatureGroup]] = {}
    for group in new_signature_groups(operators, place):
        groups.setdefault(group.signature.name, []).append(group)
    return [Name(place, name, overloads) for name, overloads in sorted(groups.items()) if name not in old]


def is_private(name: Name) -> bool:
    """Return whether the public name starts with an underscore."""
    return name.public.rpartition(".")[2].startswith("_")


def makes_tensor(name: str, group: PythonSignatureGroup) -> bool:
    """Return whether this function creates a tensor on the device of its ``device`` argument."""
    follows_another = group.signature.method or name.endswith("_like") or name.startswith("new_")
    return has_tensor_options(group.base) and not follows_another


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


def _annotated(operators: Operators) -> list[str]:
    """Return the new operators' arguments for the calls in PyTorch's test_overrides.py."""
    lines = []
    for place in PLACES:
        names = new_names(operators, place) if place.annotated else frozenset()
        for f in operators.new_functions:
            if f.func.name.name in names and belongs(f, place) and "generated" not in f.tags:
                lines.append(f"    {place.annotated}.{gen_annotated_args(f)}\n")
    return lines


@cache
def new_signature_groups(operators: Operators, place: Place) -> list[PythonSignatureGroup]:
    """Return the Python signatures at ``place`` of new operators. An out variant is part of its base's group."""
    names = new_names(operators, place)
    functions = [f for f in operators.bindable if f.func.name.name in names and belongs(f, place)]
    pairs = [signature_pair(f, place) for f in functions]
    groups: list[PythonSignatureGroup] = []
    for name in sorted(names, key=str):
        of_this_name = [pair for pair in pairs if pair.function.func.name.name == name]
        groups += (group for group in group_overloads(of_this_name) if operators.is_new(group.base))
    return groups


def signature_pair(f: NativeFunction, place: Place) -> PythonSignatureNativeFunctionPair:
    """Return ``f`` with its Python signature, in the types that stub files use."""
    with native_function_manager(f):
        return PythonSignatureNativeFunctionPair(signature(f, method=place.is_method, pyi=True), f)


def hints(groups: Iterable[PythonSignatureGroup]) -> dict[str, list[str]]:
    """Return the definitions of a stub file, by function name."""
    found: dict[str, list[str]] = {}
    for group in groups:
        vararg = group.signature.signature_str_pyi_vararg(skip_outputs=group.outplace is None)
        texts = [function_hint(group), *([_in_python(vararg)] if vararg else [])]
        found.setdefault(group.signature.name, []).extend(texts)
    return found


def function_hint(group: PythonSignatureGroup) -> str:
    """Return the definition of ``group`` for a stub file."""
    return _in_python(group.signature.signature_str_pyi(skip_outputs=group.outplace is None))


# ATen/core/Reduction.h
_REDUCTIONS = {"at::Reduction::None": "0", "at::Reduction::Mean": "1", "at::Reduction::Sum": "2"}


def _in_python(hint: str) -> str:
    """Return ``hint`` without the defaults that torchgen leaves in C++."""
    for cpp, python in _REDUCTIONS.items():
        hint = hint.replace(cpp, python)
    return re.sub(r"= \w+(::\w+)+", "= ...", hint)


def _bound(names: Sequence[Name]) -> list[Bound]:
    """Return what is documented: names of the base keep their documentation."""
    documented = [name for name in names if not name.name.startswith("__")]
    functions, methods = ({n.name: n for n in documented if n.place.is_method == kind} for kind in (False, True))
    return [
        Bound(
            place=name.place,
            name=name.name,
            public=name.public,
            signatures="\n".join(dict.fromkeys(signature_line(name, group) for group in name.groups)),
            reference=_reference(name, functions, methods),
            derived=derived_body(name.groups[0]),
        )
        for name in documented
    ]


def _reference(name: Name, functions: Mapping[str, Name], methods: Mapping[str, Name]) -> str:
    """Return the rest of the docstring if it refers to another name; else an empty string."""
    root = name.name.removesuffix("_")
    if name.place.is_method and name.name in functions:
        return f"See :func:`{functions[name.name].public}`"
    if root != name.name and root in methods and name.place.is_method:
        return f"In-place version of :meth:`~Tensor.{root}`"
    if root != name.name and root in functions:
        return f"In-place version of :func:`{functions[root].public}`"
    return ""


def derived_body(
    group: PythonSignatureGroup, summary: str = "An operator that was added to this build of PyTorch.", todo: str = ""
) -> str:
    """Describe an operator from its schema. ``todo`` is written where the schema does not describe an argument."""
    positional, keyword = ([_describe(*each, todo) for each in kind] for kind in _arguments(group))
    parts = [summary]
    if positional:
        parts.append("Args:\n" + "\n".join(positional))
    if keyword:
        parts.append("Keyword args:\n" + "\n".join(keyword))
    return "\n\n".join(parts)


def _describe(argument: ast.arg, default: ast.expr | None, todo: str) -> str:
    kind = _type_text(argument.annotation) if argument.annotation else "object"
    if argument.arg == "out":
        return f"    out ({kind.removesuffix(' or None')}, optional): the output."
    if default is not None:
        kind = f"{kind.removesuffix(' or None')}, optional"
    is_said = default is not None and not (isinstance(default, ast.Constant) and default.value is None)
    said = [text for text in (todo, f"Default: ``{ast.unparse(default)}``." if default and is_said else "") if text]
    return f"    {argument.arg} ({kind}){': ' if said else ''}{' '.join(said)}"


def signature_line(name: Name, group: PythonSignatureGroup) -> str:
    """Return the first line of a docstring: ``lerp(input, end, weight, *, out=None) -> Tensor``."""
    words, keyword = ([_word(*each) for each in kind] for kind in _arguments(group))
    separator = ["*"] if keyword else []
    return f"{name.public.rpartition('.')[2]}({', '.join([*words, *separator, *keyword])}) -> {_returns_text(group)}"


def _word(argument: ast.arg, default: ast.expr | None) -> str:
    return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"


def _definition(group: PythonSignatureGroup) -> ast.FunctionDef:
    (definition,) = ast.parse(function_hint(group)).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _arguments(group: PythonSignatureGroup) -> tuple[list[Argument], list[Argument]]:
    """Return the positional and the keyword arguments of the stub's definition, without the ``self`` of a method."""
    arguments = _definition(group).args
    if group.signature.method:
        del arguments.args[0]
    defaults = [*([None] * (len(arguments.args) - len(arguments.defaults))), *arguments.defaults]
    positional = list(zip(arguments.args, defaults, strict=True))
    return positional, list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))


def _type_text(node: ast.expr) -> str:
    """Convert a type to the form of PyTorch's docstrings: ``_int | None`` becomes ``int or None``, and
    ``Number | _complex`` becomes ``Number``.
    """
    text = re.sub(r"\b_(?=[a-z])", "", ast.unparse(node))
    return text.replace(" | ", " or ").replace("Number or complex", "Number")


def _returns_text(group: PythonSignatureGroup) -> str:
    """Return the return type: ``Tensor``, ``(Tensor, int)`` or, with names, ``(Tensor low, Tensor high)``."""
    if named_returns(group.base):
        return f"({', '.join(f'{each.type} {each.name}' for each in group.base.func.returns)})"
    node = _definition(group).returns
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return f"({', '.join(map(_type_text, node.slice.elts))})"
    return _type_text(node) if node is not None else "None"
