"""Check the arguments of a schema that torchgen parses: names and defaults."""

from __future__ import annotations

import keyword
import re

from torchgen.api.cpp import JIT_TO_CPP_DEFAULT
from torchgen.model import BaseTy, BaseType, ListType, OperatorName, OptionalType, SchemaKind, Type

from .entries import Place
from .finding import Findings, nearest
from .schemas import Function

_NUMBER = r"-?(\d+(\.\d*)?(e-?\d+)?|inf)"
_TEXT = r"\"([^\"\\]|\\.)*\"|'([^'\\]|\\.)*'"

# The form of defaults of each type. The identifiers are those that torchgen can translate to C++.
_DEFAULTS = {
    BaseTy.int: r"-?\d+|Mean",
    BaseTy.SymInt: r"-?\d+",
    BaseTy.float: _NUMBER,
    BaseTy.Scalar: _NUMBER,
    BaseTy.bool: "True|False",
    BaseTy.str: _TEXT,
    BaseTy.ScalarType: "long",
    BaseTy.MemoryFormat: "contiguous_format",
}
_EXAMPLES = {
    BaseTy.int: "3",
    BaseTy.SymInt: "3",
    BaseTy.float: "0.5",
    BaseTy.Scalar: "1",
    BaseTy.bool: "False",
    BaseTy.str: '"text"',
    BaseTy.ScalarType: "long",
    BaseTy.MemoryFormat: "contiguous_format",
}


def check_arguments(functions: list[Function], findings: Findings) -> set[OperatorName]:
    """Check names and defaults of the arguments. Return the operators whose defaults torchgen may not translate."""
    unwritable = set()
    for function in functions:
        seen: set[str] = set()
        for argument in function.schema.arguments.flat_all:
            place = place_of(argument.name, function, is_second=argument.name in seen)
            if argument.name in seen:
                what = f"two arguments are named `{argument.name}`"
                findings.add(place, what, "give one of them another name")
            seen.add(argument.name)
            if keyword.iskeyword(argument.name):
                what = f"`{argument.name}` is a Python keyword, so it cannot be used in a call"
                findings.add(place, what, "give the argument another name")
            if argument.default is not None and not _fits(argument.default, argument.type):
                what = f"`{argument.default}` is not a default for {argument.type}"
                findings.add(place, what, _todo(argument.default, argument.type))
                unwritable.add(function.schema.name)
            is_parsed = function.schema.kind() == SchemaKind.functional and not _has_no_binding(function)
            if argument.default == "Mean" and is_parsed:
                # Python's argument parser reads at::Reduction::Mean with atol (set_default_str in
                # torch/csrc/utils/python_arg_parser.cpp), so torch.hinge_embedding_loss(x, y) does not reduce, either.
                what = f"the default Mean of `{argument.name}` is 0, no reduction, when called from Python"
                findings.add(place, what, f"write `{argument.name}=1`: the same schema, and the mean", is_warning=True)
    return unwritable


def _has_no_binding(function: Function) -> bool:
    """Return whether Python has no binding of it: most of torchgen's SKIP_PYTHON_BINDINGS, which is slow to import."""
    return re.search(r"_(backward|forward|jvp)$", str(function.schema.name.name)) is not None


def place_of(name: str, function: Function, *, is_second: bool = False) -> Place:
    """Return the place of the argument ``name`` in the schema, or of the schema."""
    text = str(function.entry.fields["func"])
    places = [m.start(1) for m in re.finditer(rf"[(,]\s*([^(),]*? {re.escape(name)})(?=[=,)])", text)]
    return function.entry.value("func", places[min(int(is_second), len(places) - 1)] if places else 0)


def _fits(default: str, kind: Type) -> bool:
    if isinstance(kind, OptionalType):
        return default == "None" or _fits(default, kind.elem)
    if isinstance(kind, ListType):
        if default.startswith("[") and default.endswith("]"):
            parts = [part.strip() for part in default[1:-1].split(",")]
            return parts == [""] or all(_fits(part, kind.elem) for part in parts)
        return kind.size is not None and _fits(default, kind.elem)
    return isinstance(kind, BaseType) and re.fullmatch(_DEFAULTS.get(kind.name, "(?!)"), default) is not None


def _todo(default: str, kind: Type) -> str:
    inner = kind
    while isinstance(inner, (OptionalType, ListType)):
        inner = inner.elem
    example = _EXAMPLES.get(inner.name) if isinstance(inner, BaseType) else None
    if example is None:
        return "leave the default out" + (", or write `None`" if isinstance(kind, OptionalType) else "")
    if re.fullmatch(r"[A-Za-z_]\w*", default) and inner != BaseType(BaseTy.str):
        return nearest(default, [*JIT_TO_CPP_DEFAULT.keys() - {"[]"}, example])
    return f"write it as in `{f'[{example}]' if isinstance(kind, ListType) else example}`"
