"""Parse the requested operator, and compute the values of the templates from its schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..codegen.torchgen import (
    Argument,
    BaseTy,
    BaseType,
    Binding,
    FunctionSchema,
    ListType,
    NativeSignature,
    SchemaKind,
    Type,
    functional_to_out_signature,
    local,
    structured,
)
from ..core.errors import BuildError
from ..inputs.spelling import respelled
from .choices import camel, entry_of, file_of, kernel_of

_TENSOR = BaseType(BaseTy.Tensor)
Values: TypeAlias = dict[str, object]

# The kinds for which torchgen generates the out= variant.
_WITH_AUTOGEN = ("plain", "kernel")
_BUILDERS = {1: "build_borrowing_unary_op", 2: "build_borrowing_binary_op", 3: "build_ternary_op"}
_DEFAULTS = {"true": "True", "false": "False", "Mean": "1", "contiguous_format": "torch.contiguous_format"}
# Values of arguments that have no default.
_GIVEN = {"int": "1", "SymInt": "1", "float": "0.5", "Scalar": "2", "bool": "True", "str": '"TODO"', "Device": '"cpu"'}


@dataclass(frozen=True)
class NewOperator:
    """An operator: the schema of its functional variant, its kind, and whether it has the other variants."""

    func: FunctionSchema
    kind: str
    has_inplace: bool
    has_out: bool

    @property
    def op(self) -> str:
        """The name without an overload."""
        return str(self.func.name.name)

    @property
    def file(self) -> str:
        """The name with its overload, as the names of test files have it."""
        return file_of(str(self.func.name))

    @property
    def camel(self) -> str:
        """The name with its overload, as the names of kernel files have it."""
        return camel(str(self.func.name))

    @property
    def tensors(self) -> list[Argument]:
        """The arguments that are tensors, optional tensors or lists of tensors."""
        return [argument for argument in self.func.arguments.flat_all if argument.type.is_tensor_like()]

    @property
    def backward(self) -> NewOperator | None:
        """The operator that computes all gradients, if a kernel computes one result without lists; else None."""
        if self.kind != "kernel" or self.op.startswith("_") or not self.tensors or len(self.func.returns) != 1:
            return None
        if any(each.type.is_list_like() for each in (*self.tensors, *self.func.returns)):
            return None
        arguments = ", ".join(str(each).partition("=")[0] for each in self.func.arguments.flat_all)
        returns = ", ".join("Tensor" for _ in self.tensors)
        result = f"({returns})" if self.tensors[1:] else returns
        schema = f"_{self.file}_backward(Tensor grad_output, {arguments}) -> {result}"
        return NewOperator(FunctionSchema.parse(schema), self.kind, has_inplace=False, has_out=False)

    @property
    def variants(self) -> dict[str, FunctionSchema]:
        """The schemas of all variants."""
        found = {"functional": self.func}
        if self.has_inplace:
            head = str(self.func).replace("Tensor self", "Tensor(a!) self", 1).rpartition(" -> ")[0]
            found["inplace"] = FunctionSchema.parse(f"{self.op}_{head.removeprefix(self.op)} -> Tensor(a!)")
        return found | ({"out": functional_to_out_signature(self.func)} if self.has_out else {})


def parse_operator(schema: str, kind: str, variants: set[str]) -> NewOperator:
    """Parse ``schema`` and check that ``kind`` and ``variants`` fit it.

    Raises:
        BuildError: the schema is invalid, or not supported by new-op.
    """
    try:
        func = FunctionSchema.parse(respelled(schema))
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", str(func.name)):
            raise ValueError(f"{func.name} is not a valid name: use letters, digits and _, then .overload if needed")
    except Exception as error:  # torchgen raises AssertionError, ValueError or RuntimeError
        todo = 'write it as in native_functions.yaml: "my_op(Tensor self, *, float alpha=1.0) -> Tensor"'
        raise BuildError(f"SCHEMA: not a schema\n  {schema}", cause=str(error), todo=todo) from error
    # A structured operator needs its out= variant, which the other variants call. A plain one that mutates self needs
    # it because torchgen groups variants for functionalization only around an out= variant.
    out = "out" in variants or kind == "pointwise" or (kind == "plain" and "inplace" in variants)
    operator = NewOperator(func, kind, "inplace" in variants, out)
    for what, todo in _misfits(operator):
        raise BuildError(f"SCHEMA: {schema}\n  {what}", todo=todo)
    return operator


def _misfits(operator: NewOperator) -> Iterator[tuple[str, str]]:
    """Yield each request that is not supported, and its remedy."""
    arguments, returns = operator.func.arguments, [each.type for each in operator.func.returns]
    makes_tensor = arguments.tensor_options is not None
    has_self = arguments.self_arg is not None and arguments.self_arg.argument.type == _TENSOR
    inputs, is_alike = [each.type for each in operator.tensors], not makes_tensor and returns == [_TENSOR]
    is_elementwise = is_alike and inputs in ([_TENSOR], [_TENSOR] * 2, [_TENSOR] * 3)
    if operator.func.kind() != SchemaKind.functional:
        yield "it mutates its arguments", "give the functional schema, and request others with VARIANTS=inplace,out"
    if any(argument.annotation for argument in arguments.flat_all):
        yield "it returns a view", "leave out the (a) if it returns new memory, or write the view by hand"
    if "SymInt" in map(str, returns):
        yield "no Python function returns a SymInt", "return an int, which is a constant in graphs, or a tensor"
    if operator.kind == "kernel" and operator.has_inplace:
        yield "a kernel that computes new tensors has no in-place variant", "leave `inplace` out of VARIANTS"
    if operator.kind == "pointwise" and (not is_elementwise or arguments.has_generator_arg()):
        yield "a pointwise operator computes one Tensor from one to three, elementwise", "use KIND=plain"
    if operator.has_inplace and not (has_self and is_alike):
        yield "an in-place variant needs `Tensor self` and returns one Tensor", "leave `inplace` out of VARIANTS"
    if operator.has_out and (set(returns) != {_TENSOR} or (makes_tensor and operator.kind == "composite")):
        yield "an out= variant returns Tensors; a composite one makes them from others", "leave `out` out of VARIANTS"


def values_of(operator: NewOperator, is_public: bool, is_described: bool) -> Values:
    """Return the values of all templates.

    Args:
        operator: the requested operator.
        is_public: whether it is a new public name; if it takes tensors, PyTorch's own tests run on it.
        is_described: whether samples.py describes it already.
    """
    # torchgen sets this for every function whose entry does not set the opposite.
    with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        values = _entries(operator) | _variants(operator) | _cplusplus(operator)
    return values | _python(operator, is_public, is_described)


def _entries(operator: NewOperator) -> Values:
    """Return the values for native_functions.yaml and derivatives.yaml that are the same for all variants."""
    name, arguments = str(operator.func.name), operator.func.arguments
    has_self, has_generator = arguments.self_arg is not None, arguments.has_generator_arg()
    out = str(operator.variants["out"].name) if "out" in operator.variants else ""
    is_differentiable = operator.kind != "composite" and any(
        each.type.is_tensor_like() for each in operator.func.returns
    )
    return {
        **entry_of(name, operator.kind, has_self=has_self, has_generator=has_generator),
        "name": name,
        "op": operator.op,
        "delegate": out if operator.kind == "pointwise" else "",
        # torchgen generates this out= variant, from the in-place variant if there is one.
        "autogen": out if operator.kind in _WITH_AUTOGEN else "",
        "is_differentiable": is_differentiable and bool(operator.tensors),
        "formulas": _formulas(operator),
        "lists": [each.name for each in operator.tensors if each.type.is_list_like()],
    }


def _formulas(operator: NewOperator) -> dict[str, str]:
    """Return the derivative formulas, by the names of the arguments whose gradients they compute."""
    names = [each.name for each in operator.tensors if not each.type.is_list_like()]
    if not operator.backward:
        return dict.fromkeys(names, f'not_implemented("{operator.func.name}")')
    symint = "_symint" if operator.func.has_symint() else ""
    given = ", ".join(["grad", *(each.name for each in operator.func.arguments.flat_all)])
    formula = f"{operator.backward.op}{symint}({given})"
    if names[1:]:  # torchgen calls a formula for several gradients even if `grad` is undefined
        formula = f"grad.defined() ? {formula} : std::tuple<{', '.join('Tensor' for _ in names)}>()"
    return {", ".join(names): formula}


def _variants(operator: NewOperator) -> Values:
    """Return the entry and the kernel of each variant; None for a variant that torchgen generates."""
    name, has_symint = str(operator.func.name), operator.func.has_symint()
    is_symint = has_symint and operator.kind != "pointwise"
    found = {}
    for variant, func in operator.variants.items():
        kernel, table = kernel_of(name, operator.kind, variant, has_symint=has_symint)
        found[variant] = {
            "kernel": kernel,
            "schema": str(func),
            "dispatch": table,
            "result": _tidy(NativeSignature(func, symint=is_symint).returns_type().cpp_type()),
            "parameters": _joined(_bindings(operator, func)),
        }
    out = None if operator.kind in _WITH_AUTOGEN else found.get("out")
    return {**found["functional"], "inplace": found.get("inplace"), "out": out}


def _cplusplus(operator: NewOperator) -> Values:
    """Return the values for the bodies of kernels."""
    bindings, inputs = _bindings(operator, operator.func), [argument.name for argument in operator.tensors]
    others = [each for each in bindings if each.name not in inputs]
    outs = [argument.name for argument in operator.variants.get("out", operator.func).arguments.out]
    results = [f"std::get<{index}>(result)" for index in range(len(outs))] if outs[1:] else ["result"]
    return {
        "Op": operator.camel,
        "given": ", ".join(each.name for each in bindings),
        "checked": [argument.name for argument in operator.tensors if argument.type == _TENSOR],
        "outputs": dict(zip(results, outs, strict=False)),
        "returned": f"std::forward_as_tuple({', '.join(outs)})" if outs[1:] else "".join(outs),
        "build": _BUILDERS.get(len(inputs), ""),
        "inputs": inputs,
        "others": "".join(f", {each.name}" for each in others),
        "other_types": _tidy("".join(f", {each.nctype.type.cpp_type()}" for each in others)),
        "other_parameters": _tidy("".join(f", {each.defn()}" for each in others)),
    }


def _bindings(operator: NewOperator, func: FunctionSchema) -> Sequence[Binding]:
    """Return the parameters of a kernel."""
    if operator.kind == "pointwise":
        return [each for argument in func.arguments.flat_all for each in structured.argument(argument)]
    return NativeSignature(func, symint=func.has_symint()).arguments()


def _joined(bindings: Sequence[Binding]) -> str:
    """Format parameters: each in a line of its own if they are long."""
    line = _tidy(", ".join(each.defn() for each in bindings))
    return line if len(line) < 75 else "\n    " + _tidy(",\n    ".join(each.defn() for each in bindings))


def _tidy(text: str) -> str:
    """Format torchgen's declarations for use within ``namespace at::native``."""
    return re.sub(r",(?=\S)", ", ", re.sub(r"(?<![\w:])(::)?at::|(?<![\w:])::(?=std::)| (?=&)", "", text))


def _python(operator: NewOperator, is_public: bool, is_described: bool) -> Values:
    """Return the values for samples, tests, decompositions and docstrings."""
    is_tested = is_public and bool(operator.tensors)
    name, overload = str(operator.func.name), f"{operator.op}.{operator.func.name.overload_name or 'default'}"
    positional, named = ([f"{each.name}{_default(each)}" for each in group] for group in _groups(operator))
    titles = zip(("Args", "Keyword args"), _groups(operator), strict=True)
    return {
        "is_sampled": is_tested and not is_described,
        "samples": [_arguments(operator, f"make({shape})") for shape in ("2, 3", "0, 3")],
        "derivatives": ('"supports_gradgrad": False' if operator.backward else '"supports_forward_ad": True'),
        # The out= variant that torchgen generates has no binding.
        "has_out": operator.has_out and operator.kind not in _WITH_AUTOGEN,
        "python_parameters": ", ".join([*positional, *(["*", *named] if named else [])]),
        "overload": overload,
        "is_tested": is_tested,
        # A name alone stands for all of its overloads, also PyTorch's.
        "registered": f"aten.{name}, aten.{name}_out" if "." in name else f"aten.{name}",
        "is_public": is_public,
        "documented": {title: [_documented(each) for each in group] for title, group in titles},
    }


def _groups(operator: NewOperator) -> tuple[Sequence[Argument], Sequence[Argument]]:
    """Return the positional arguments and the others."""
    return operator.func.arguments.flat_positional, operator.func.arguments.flat_kwarg_only


def _documented(argument: Argument) -> str:
    kind = str(argument.type).replace("SymInt", "int").rstrip("?")
    return f"{'input' if argument.name == 'self' else argument.name} ({kind}{', optional' if argument.default else ''})"


def _default(argument: Argument) -> str:
    return f"={_DEFAULTS.get(argument.default, argument.default)}" if argument.default else ""


def _arguments(operator: NewOperator, tensor: str) -> str:
    """Return Python code of all tensors and of arguments without a default; those after the ``*`` in a dict."""
    positional, named = (
        {each.name: _value(each.type, tensor) for each in group if each.type.is_tensor_like() or each.default is None}
        for group in _groups(operator)
    )
    keywords = ", ".join(f'"{name}": {value}' for name, value in named.items())
    return ", ".join([*positional.values(), f"{{{keywords}}}"])


def _value(kind: Type, tensor: str) -> str:
    if isinstance(kind, ListType):
        return f"[{', '.join([_value(kind.elem, tensor)] * (kind.size or 2))}]"
    return tensor if kind.is_tensor_like() else _GIVEN.get(str(kind), "None")
