"""The requested operator, and the values of the templates: what its schema and torchgen say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml

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
from ..core.errors import OperatorError
from ..inputs.spelling import respelled

_TENSOR = BaseType(BaseTy.Tensor)
Values: TypeAlias = dict[str, str | list[str]]

# Modules whose functions all have the module's name as a prefix in native_functions.yaml, and no others do.
_PREFIXED_MODULES = frozenset({"fft", "linalg", "special"})
# Lines of dispatch tables, with the name of the kernel.
_TABLES = {
    "plain": ["CompositeExplicitAutograd: {}"],
    "kernel": ["CPU: {}_cpu", "Meta: {}_meta"],
    "composite": ["CompositeImplicitAutograd: {}"],
    "pointwise": ["CPU: {}"],
}
# Of these, torchgen generates the out= variant.
_WITH_AUTOGEN = ("plain", "kernel")
_BUILDERS = {1: "build_borrowing_unary_op", 2: "build_borrowing_binary_op", 3: "build_ternary_op"}
_DEFAULTS = {"true": "True", "false": "False", "Mean": "1", "contiguous_format": "torch.contiguous_format"}
# Values of arguments that have no default.
_GIVEN = {"int": "1", "SymInt": "1", "float": "0.5", "Scalar": "2", "bool": "True", "str": '"TODO"', "Device": '"cpu"'}


@dataclass(frozen=True)
class Request:
    """An operator: the schema of its functional variant, its kind, and whether it has the other variants."""

    func: FunctionSchema
    kind: str
    inplace: bool
    out: bool

    @property
    def op(self) -> str:
        """The name without an overload."""
        return str(self.func.name.name)

    @property
    def file(self) -> str:
        """The name with its overload, in the form of a test's file."""
        return str(self.func.name).replace(".", "_")

    @property
    def camel(self) -> str:
        """The name with its overload, in the form of a kernel's file."""
        return "".join(part[:1].upper() + part[1:] for part in self.file.split("_"))

    @property
    def tensors(self) -> list[Argument]:
        """The arguments that are tensors, optional tensors or lists of tensors."""
        return [argument for argument in self.func.arguments.flat_all if argument.type.is_tensor_like()]

    @property
    def backward(self) -> Request | None:
        """The operator that computes the gradients of all tensors, for an operator that computes one with a kernel."""
        if self.kind != "kernel" or self.op.startswith("_") or not self.tensors or len(self.func.returns) != 1:
            return None
        if any(each.type.is_list_like() for each in (*self.tensors, *self.func.returns)):
            return None
        arguments = ", ".join(str(each).partition("=")[0] for each in self.func.arguments.flat_all)
        returns = ", ".join("Tensor" for _ in self.tensors)
        result = f"({returns})" if self.tensors[1:] else returns
        schema = f"_{self.file}_backward(Tensor grad_output, {arguments}) -> {result}"
        return Request(FunctionSchema.parse(schema), self.kind, inplace=False, out=False)

    @property
    def variants(self) -> dict[str, FunctionSchema]:
        """The schemas of all variants, by the prefix of their values in templates."""
        found = {"": self.func}
        if self.inplace:
            head = str(self.func).replace("Tensor self", "Tensor(a!) self", 1).rpartition(" -> ")[0]
            found["inplace_"] = FunctionSchema.parse(f"{self.op}_{head.removeprefix(self.op)} -> Tensor(a!)")
        return found | ({"out_": functional_to_out_signature(self.func)} if self.out else {})


def parse_request(schema: str, kind: str, variants: set[str]) -> Request:
    """Parse ``schema`` and check that ``kind`` and ``variants`` fit it.

    Raises:
        OperatorError: the schema is invalid, or not supported by new-op.
    """
    try:
        func = FunctionSchema.parse(respelled(schema))
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", str(func.name)):
            raise ValueError(f"{func.name} is not a valid name: use letters, digits and _, then .overload if needed")
    except Exception as error:  # torchgen raises AssertionError, ValueError or RuntimeError
        todo = 'write it as in native_functions.yaml: "my_op(Tensor self, *, float alpha=1.0) -> Tensor"'
        raise OperatorError(f"SCHEMA: not a schema\n  {schema}", cause=str(error), todo=todo) from error
    # A structured operator needs its out= variant, which the other variants call. A plain one that mutates self needs
    # it because torchgen groups variants for functionalization only around an out= variant.
    out = "out" in variants or kind == "pointwise" or (kind == "plain" and "inplace" in variants)
    request = Request(func, kind, "inplace" in variants, out)
    for what, todo in _misfits(request):
        raise OperatorError(f"SCHEMA: {schema}\n  {what}", todo=todo)
    return request


def _misfits(request: Request) -> Iterator[tuple[str, str]]:
    """Yield what is not supported, and what to do."""
    arguments, returns = request.func.arguments, [each.type for each in request.func.returns]
    makes_tensor = arguments.tensor_options is not None
    has_self = arguments.self_arg is not None and arguments.self_arg.argument.type == _TENSOR
    inputs, is_alike = [each.type for each in request.tensors], not makes_tensor and returns == [_TENSOR]
    is_elementwise = is_alike and inputs in ([_TENSOR], [_TENSOR] * 2, [_TENSOR] * 3)
    if request.func.kind() != SchemaKind.functional:
        yield "it mutates its arguments", "give the functional schema, and request others with VARIANTS=inplace,out"
    if any(argument.annotation for argument in arguments.flat_all):
        yield "it returns a view", "leave out the (a) if it returns new memory, or write the view by hand"
    if request.kind == "kernel" and request.inplace:
        yield "a kernel that computes new tensors has no in-place variant", "leave `inplace` out of VARIANTS"
    if request.kind == "pointwise" and (not is_elementwise or arguments.has_generator_arg()):
        yield "a pointwise operator computes one Tensor from one to three, elementwise", "use KIND=plain"
    if request.inplace and not (has_self and is_alike):
        yield "an in-place variant needs `Tensor self` and returns one Tensor", "leave `inplace` out of VARIANTS"
    if request.out and (set(returns) != {_TENSOR} or (makes_tensor and request.kind == "composite")):
        yield "an out= variant returns Tensors; a composite one makes them from others", "leave `out` out of VARIANTS"


def values_of(request: Request, is_public: bool, is_described: bool) -> Values:
    """Return the values of all templates.

    Args:
        request: the requested operator.
        is_public: whether it is a new public name; if it takes tensors, PyTorch's own tests run on it.
        is_described: whether samples.py describes it already.
    """
    # torchgen sets this for every function whose entry does not set the opposite.
    with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        values = _entries(request) | _variants(request) | _cplusplus(request)
    return values | _python(request, is_public, is_described)


def _entries(request: Request) -> Values:
    """native_functions.yaml and derivatives.yaml, without what differs between variants."""
    is_pointwise, arguments = request.kind == "pointwise", request.func.arguments
    module = [request.op.partition("_")[0]] if request.op.partition("_")[0] in _PREFIXED_MODULES else []
    out = [str(request.variants["out_"].name)] if request.out else []
    # torchgen generates the out= variant of a plain operator: of the in-place one, if there is one.
    autogen = out if request.kind in _WITH_AUTOGEN else []
    singles = [each.name for each in request.tensors if not each.type.is_list_like()]
    keys, formulas = [_scalar(name) for name in singles], [f'not_implemented("{request.func.name}")' for _ in singles]
    if request.backward:
        symint = "_symint" if request.func.has_symint() else ""
        given = ", ".join(["grad", *(each.name for each in request.func.arguments.flat_all)])
        keys, formulas = [", ".join(singles)], [f"{request.backward.op}{symint}({given})"]
        if singles[1:]:  # torchgen calls a formula for several gradients without asking whether there is one
            nothing = f"std::tuple<{', '.join('Tensor' for _ in singles)}>()"
            formulas = [_scalar(f"grad.defined() ? {formulas[0]} : {nothing}")]
    is_differentiable = request.kind != "composite" and any(each.type.is_tensor_like() for each in request.func.returns)
    return {
        "name": str(request.func.name),
        "op": request.op,
        "delegate": out if is_pointwise else [],
        "module": module,
        "variants": "function" if module or arguments.self_arg is None else "function, method",
        "autogen": [] if request.inplace else autogen,
        "inplace_autogen": autogen,
        "structured": ["True"] if is_pointwise else [],
        "inherits": ["TensorIteratorBase"] if is_pointwise else [],
        "tags": ["pointwise"] if is_pointwise else ["nondeterministic_seeded"] if arguments.has_generator_arg() else [],
        "differentiable": [str(request.func.name)] if is_differentiable and request.tensors else [],
        "keys": keys,
        "formulas": formulas,
        "list_keys": [_scalar(each.name) for each in request.tensors if each.type.is_list_like()],
    }


def _scalar(text: str) -> str:
    """Format a text in YAML: with quotes if it needs them."""
    return yaml.safe_dump([text], width=10**6).removeprefix("- ").rstrip()


def _variants(request: Request) -> Values:
    """The entry and the kernel of each variant; nothing of one that torchgen generates."""
    is_symint = request.func.has_symint() and request.kind != "pointwise"
    # Without a dispatch table torchgen names the kernel, and omits the overload.
    name = request.op if request.kind == "composite" else request.file
    values: Values = {}
    for variant, suffix in {"": "", "inplace_": "_", "out_": "_out"}.items():
        is_generated = request.kind in _WITH_AUTOGEN and variant == "out_"
        func = [func for key, func in request.variants.items() if key == variant and not is_generated]
        kernel = f"{name}{suffix}{'_symint' if is_symint else ''}"
        has_table = {"composite": is_symint, "pointwise": variant == "out_"}.get(request.kind, True)
        table = "".join(f"\n    {line.format(kernel)}" for line in _TABLES[request.kind])
        values |= {
            f"{variant}kernel": kernel,
            f"{variant}schema": [_scalar(str(each)) for each in func],
            f"{variant}dispatch": [table for _ in func if has_table],
            f"{variant}result": [_tidy(NativeSignature(f, symint=is_symint).returns_type().cpp_type()) for f in func],
            f"{variant}parameters": [_joined(_bindings(request, each)) for each in func],
        }
    return values


def _cplusplus(request: Request) -> Values:
    """What the bodies of kernels name."""
    bindings, inputs = _bindings(request, request.func), [argument.name for argument in request.tensors]
    others = [each for each in bindings if each.name not in inputs]
    outs = [argument.name for argument in request.variants.get("out_", request.func).arguments.out]
    return {
        "Op": request.camel,
        "given": ", ".join(each.name for each in bindings),
        "checked": [argument.name for argument in request.tensors if argument.type == _TENSOR],
        "outs": outs,
        "results": [f"std::get<{index}>(result)" for index in range(len(outs))] if outs[1:] else ["result"] * len(outs),
        "returned": f"std::forward_as_tuple({', '.join(outs)})" if outs[1:] else "".join(outs),
        "build": _BUILDERS.get(len(inputs), ""),
        "inputs": ", ".join(inputs),
        "elements": ", ".join(f"scalar_t {name}" for name in inputs),
        "vectors": ", ".join(f"vec::Vectorized<scalar_t> {name}" for name in inputs),
        "first": "".join(inputs[:1]),
        "others": "".join(f", {each.name}" for each in others),
        "other_types": _tidy("".join(f", {each.nctype.type.cpp_type()}" for each in others)),
        "other_parameters": _tidy("".join(f", {each.defn()}" for each in others)),
    }


def _bindings(request: Request, func: FunctionSchema) -> Sequence[Binding]:
    """Return the parameters of a kernel."""
    if request.kind == "pointwise":
        return [each for argument in func.arguments.flat_all for each in structured.argument(argument)]
    return NativeSignature(func, symint=func.has_symint()).arguments()


def _joined(bindings: Sequence[Binding]) -> str:
    """Format parameters: each in a line of its own if they are long."""
    line = _tidy(", ".join(each.defn() for each in bindings))
    return line if len(line) < 75 else "\n    " + _tidy(",\n    ".join(each.defn() for each in bindings))


def _tidy(text: str) -> str:
    """Format torchgen's declarations for use within ``namespace at::native``."""
    return re.sub(r",(?=\S)", ", ", re.sub(r"(?<![\w:])(::)?at::|(?<![\w:])::(?=std::)| (?=&)", "", text))


def _python(request: Request, is_public: bool, is_described: bool) -> Values:
    """Samples, tests, decompositions and docstrings."""
    is_tested = is_public and bool(request.tensors)
    name, overload = str(request.func.name), f"{request.op}.{request.func.name.overload_name or 'default'}"
    samples = [_arguments(request, f"make({shape})") for shape in ("2, 3", "0, 3")]
    positional, named = ([f"{each.name}{_default(each)}" for each in group] for group in _groups(request))
    return {
        "sampled": [request.op] if is_tested and not is_described else [],
        "samples": samples,
        "sample": samples[0],
        # The out= variant that torchgen generates has no binding.
        "derivatives": ('"supports_gradgrad": False' if request.backward else '"supports_forward_ad": True'),
        "has_out": str(request.out and request.kind not in _WITH_AUTOGEN),
        "python_parameters": ", ".join([*positional, *(["*", *named] if named else [])]),
        "overload": overload,
        "tested_by": ["samples.py"] if is_tested else [],
        "untested": [] if is_tested else [overload],
        # A name alone stands for all of its overloads, also PyTorch's.
        "registered": f"aten.{name}, aten.{name}_out" if "." in name else f"aten.{name}",
        "promoted": ", ".join(f'"{argument.name}"' for argument in request.tensors),
        "documented": [request.op] if is_public else [],
        "args": ["Args"] if is_public and positional else [],
        "arguments": [_documented(each) for each in _groups(request)[0]],
        "keyword_args": ["Keyword args"] if is_public and named else [],
        "keyword_arguments": [_documented(each) for each in _groups(request)[1]],
    }


def _groups(request: Request) -> tuple[Sequence[Argument], Sequence[Argument]]:
    """Return the positional arguments and the others."""
    return request.func.arguments.flat_positional, request.func.arguments.flat_kwarg_only


def _documented(argument: Argument) -> str:
    kind = str(argument.type).replace("SymInt", "int").rstrip("?")
    return f"{'input' if argument.name == 'self' else argument.name} ({kind}{', optional' if argument.default else ''})"


def _default(argument: Argument) -> str:
    return f"={_DEFAULTS.get(argument.default, argument.default)}" if argument.default else ""


def _arguments(request: Request, tensor: str) -> str:
    """Return Python code of the arguments that have no default, and of all tensors; those after the ``*`` in a dict."""
    positional, named = (
        {each.name: _value(each.type, tensor) for each in group if each.type.is_tensor_like() or each.default is None}
        for group in _groups(request)
    )
    keywords = ", ".join(f'"{name}": {value}' for name, value in named.items())
    return ", ".join([*positional.values(), f"{{{keywords}}}"])


def _value(kind: Type, tensor: str) -> str:
    if isinstance(kind, ListType):
        return f"[{', '.join([_value(kind.elem, tensor)] * (kind.size or 2))}]"
    return tensor if kind.is_tensor_like() else _GIVEN.get(str(kind), "None")
