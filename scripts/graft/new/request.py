"""The requested operator: its schema, parsed by torchgen, its variants and the kind of its kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchgen.model import Argument, BaseTy, BaseType, FunctionSchema, Return, SchemaKind
from torchgen.native_function_generation import functional_to_out_signature

from ..core.errors import OperatorError

TENSOR = BaseType(BaseTy.Tensor)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


@dataclass(frozen=True)
class Request:
    """An operator to generate a skeleton for.

    Args:
        func: the schema of the functional variant.
        kind: ``pointwise``, ``plain`` or ``composite``.
        inplace: whether to add an in-place variant.
        out: whether to add an ``out=`` variant.
    """

    func: FunctionSchema
    kind: str
    inplace: bool
    out: bool

    @property
    def name(self) -> str:
        """The operator's name with its overload, as a C++ or Python name."""
        return str(self.func.name).replace(".", "_")

    @property
    def camel(self) -> str:
        """The name in the form of kernel files' names."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))

    @property
    def arguments(self) -> list[Argument]:
        """Every argument, in the order of the schema."""
        return list(self.func.arguments.flat_all)

    @property
    def tensors(self) -> list[Argument]:
        """The arguments that are tensors, optional tensors or lists of tensors."""
        return [argument for argument in self.arguments if argument.type.is_tensor_like()]

    @property
    def is_differentiable(self) -> bool:
        """Whether a gradient can flow from a result to an argument."""
        return bool(self.tensors) and any(each.type.is_tensor_like() for each in self.func.returns)

    @property
    def inplace_func(self) -> FunctionSchema:
        """The schema of the in-place variant."""
        text = str(self.func).replace("Tensor self", "Tensor(a!) self", 1)
        base, rest = str(self.func.name.name), text[len(str(self.func.name.name)) :]
        return FunctionSchema.parse(f"{base}_{rest.rpartition(' -> ')[0]} -> Tensor(a!)")

    @property
    def out_func(self) -> FunctionSchema:
        """The schema of the ``out=`` variant, with the name that torchgen gives to generated ones."""
        return functional_to_out_signature(self.func)

    @property
    def functions(self) -> list[FunctionSchema]:
        """The schemas of all variants."""
        out = [self.out_func] if self.out else []
        return [self.func, *([self.inplace_func] if self.inplace else []), *out]


def parse_request(schema: str, kind: str, variants: set[str]) -> Request:
    """Parse ``schema`` and check that ``kind`` and ``variants`` fit it.

    Raises:
        OperatorError: the schema is invalid, or not supported by new-op.
    """
    func = parse_schema(schema)
    _require_functional(func)
    inplace = "inplace" in variants
    # A structured operator needs its out= variant, which the other variants call. A plain one that mutates self needs
    # it because torchgen groups variants for functionalization only around an out= variant.
    out = "out" in variants or kind == "pointwise" or (kind == "plain" and inplace)
    request = Request(func, kind, inplace, out)
    if kind == "pointwise":
        _require_pointwise(request)
    if request.inplace:
        _require_self(request)
    if request.out:
        _require_tensors_returned(request)
    return request


def parse_schema(schema: str) -> FunctionSchema:
    """Parse a schema with torchgen.

    Raises:
        OperatorError: torchgen's message and, if it can be found, the column.
    """
    try:
        func = FunctionSchema.parse(schema)
        if not _IDENTIFIER.fullmatch(str(func.name)):
            raise ValueError(f"{func.name} is not a valid name: use letters, digits and _, then .overload if needed")
    except Exception as error:  # torchgen raises AssertionError, ValueError or RuntimeError
        column = _column_of_fault(schema)
        raise OperatorError(
            f"SCHEMA: column {column + 1}: not a schema\n  {schema}\n  {' ' * column}^",
            cause=str(error) or type(error).__name__,
            todo='write it as in native_functions.yaml: "my_op(Tensor self, *, float alpha=1.0) -> Tensor"',
        ) from error
    return func


def _column_of_fault(schema: str) -> int:
    """Return where torchgen fails, counted from 0. Its message does not include that."""
    if not _IDENTIFIER.match(schema):
        return 0
    opening, arrow = schema.find("("), schema.rfind(") -> ")
    if opening < 0 or arrow < 0:
        missing = opening if opening < 0 else arrow
        return len(schema) if missing < 0 else missing
    if not _IDENTIFIER.fullmatch(schema[:opening]):
        found = _IDENTIFIER.match(schema)
        return found.end() if found else 0
    place = opening + 1
    for part in schema[place:arrow].split(", "):
        if part != "*" and part and not _parses(Argument.parse, part):
            return place
        place += len(part) + len(", ")
    place = arrow + len(") -> ")
    returns = schema[place:]
    within = 1 if returns.startswith("(") else 0
    for part in returns.strip("()").split(", ") if within and returns != "()" else [returns][within:]:
        if not _parses(Return.parse, part):
            return place + within
        place += len(part) + len(", ")
    return _first_difference(schema)


def _parses(parse: object, text: str) -> bool:
    """Return whether ``parse`` accepts ``text`` and the result has the same text."""
    assert callable(parse)
    try:
        return str(parse(text)) == text
    except Exception:  # as above
        return False


def _first_difference(schema: str) -> int:
    """Return where the schema as parsed by torchgen begins to differ; 0 if nothing was parsed."""
    name, _, rest = schema.partition("(")
    try:
        understood = str(FunctionSchema.parse(" ".join(schema.split())))
    except Exception as error:  # torchgen's message has the form `<parsed> != <given>`
        understood = str(error).partition(" != ")[0]
    if not understood.startswith(f"{name}("):
        return 0
    return next((at for at, (a, b) in enumerate(zip(understood, schema, strict=False)) if a != b), len(rest))


def _require_functional(func: FunctionSchema) -> None:
    given = f"SCHEMA: {func}"
    if func.kind() != SchemaKind.functional:
        raise OperatorError(
            f"{given}\n  this is the schema of an operator that mutates its arguments ({func.kind().name})",
            todo="give the schema of the functional variant, and request the others with VARIANTS=inplace,out",
        )
    if any(argument.annotation for argument in func.arguments.flat_all):
        raise OperatorError(
            f"{given}\n  new-op does not support operators that return a view",
            todo="leave out the (a) if it returns new memory, or write the view by hand",
        )


def _require_pointwise(request: Request) -> None:
    inputs = [argument for argument in request.tensors if argument.type == TENSOR]
    faults = [
        f"argument {argument.name} is {argument.type}, not Tensor"
        for argument in request.tensors
        if argument.type != TENSOR
    ]
    if not 1 <= len(inputs) <= 3:
        faults.append(f"it takes {len(inputs)} tensors")
    if [each.type for each in request.func.returns] != [TENSOR]:
        faults.append(f"it returns {', '.join(str(each.type) for each in request.func.returns) or 'nothing'}")
    if request.func.arguments.tensor_options is not None:
        faults.append("it takes the options of a new tensor")
    if request.func.arguments.has_generator_arg():
        faults.append("it takes a Generator")
    if faults:
        raise OperatorError(
            f"SCHEMA: {request.func}\n  not a pointwise operator: {'; '.join(faults)}",
            cause="a pointwise operator computes one Tensor from one to three, elementwise",
            todo="use KIND=plain",
        )


def _require_self(request: Request) -> None:
    first = request.func.arguments.self_arg
    takes_self = first is not None and first.argument.type == TENSOR
    options = request.func.arguments.tensor_options is not None
    if not takes_self or options or [each.type for each in request.func.returns] != [TENSOR]:
        raise OperatorError(
            f"SCHEMA: {request.func}\n  an operator like this has no in-place variant",
            cause="it needs an argument `Tensor self`, one Tensor as its return and no options of a new tensor",
            todo="leave `inplace` out of VARIANTS",
        )


def _require_tensors_returned(request: Request) -> None:
    returns = [each.type for each in request.func.returns]
    if not returns or any(each != TENSOR for each in returns):
        raise OperatorError(
            f"SCHEMA: {request.func}\n  an operator like this has no out= variant",
            cause="each of its returns must be a Tensor",
            todo="leave `out` out of VARIANTS",
        )
