"""The requested operator: its schema, parsed by torchgen, its kind and its variants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchgen.model import Argument, BaseTy, BaseType, FunctionSchema, SchemaKind
from torchgen.native_function_generation import functional_to_out_signature

from ..core.errors import OperatorError

TENSOR = BaseType(BaseTy.Tensor)


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
        func = FunctionSchema.parse(schema)
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
    has_self = arguments.self_arg is not None and arguments.self_arg.argument.type == TENSOR
    inputs, is_alike = [each.type for each in request.tensors], not makes_tensor and returns == [TENSOR]
    is_elementwise = is_alike and inputs in ([TENSOR], [TENSOR] * 2, [TENSOR] * 3)
    if request.func.kind() != SchemaKind.functional:
        yield "it mutates its arguments", "give the functional schema, and request others with VARIANTS=inplace,out"
    if any(argument.annotation for argument in arguments.flat_all):
        yield "it returns a view", "leave out the (a) if it returns new memory, or write the view by hand"
    if request.kind == "pointwise" and (not is_elementwise or arguments.has_generator_arg()):
        yield "a pointwise operator computes one Tensor from one to three, elementwise", "use KIND=plain"
    if request.inplace and not (has_self and is_alike):
        yield "an in-place variant needs `Tensor self` and returns one Tensor", "leave `inplace` out of VARIANTS"
    if request.out and (set(returns) != {TENSOR} or (makes_tensor and request.kind == "composite")):
        yield "an out= variant returns Tensors; a composite one makes them from others", "leave `out` out of VARIANTS"


def operators_of(path: Path) -> dict[str, str]:
    """Return ``file:line`` of each operator in a native_functions.yaml, which may not exist."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    entries = ((re.match(r"\s*- func:\s*['\"]?([\w.]+)\(", line), number) for number, line in enumerate(lines, 1))
    return {entry[1]: f"{path}:{number}" for entry, number in entries if entry}


def refuse_known(request: Request, ours: dict[str, str], upstream: dict[str, str]) -> None:
    """Check that no variant has the name of an operator, given the results of ``operators_of``.

    Raises:
        OperatorError: gives the place of each that exists.
    """
    known, names = upstream | ours, [str(func.name) for func in request.variants.values()]
    if not request.func.name.overload_name:
        # Beside overloads of PyTorch's, it must be one with its own name.
        names += [name for name in upstream if name.startswith(f"{request.op}.")][:1]
    if faults := [f"{known[name]}: the operator {name} already exists" for name in names if name in known]:
        raise OperatorError("\n".join(faults), todo=f"choose another name, or an overload: {request.op}.mine(...)")
