"""The test file: values, variants, gradients, opcheck and compile, with a reference to complete."""

from __future__ import annotations

import keyword
import re

from torchgen.model import Argument, FunctionSchema, ListType, Type

from .request import Request

_VALUES = {
    "int": "1",
    "SymInt": "1",
    "float": "0.5",
    "Scalar": "2",
    "bool": "True",
    "str": '"TODO"',
    "ScalarType": "torch.double",
    "Device": '"cpu"',
    "Layout": "torch.strided",
    "MemoryFormat": "torch.contiguous_format",
}


def python_test(request: Request) -> str:
    """Return the text of the test file."""
    parts = [_head(request), _values(request)]
    if request.inplace:
        parts.append(_inplace(request))
    if request.out:
        parts.append(_out(request))
    if request.is_differentiable:
        parts.append(_gradients(request))
    parts += [_opcheck(), _compile()]
    return "\n\n".join(parts)


def _head(request: Request) -> str:
    parameters = [name for argument in request.tensors for name in _tensor_names(argument)]
    typed = "".join(f", {name}: Tensor" for name in parameters)
    positional = [_given(argument) for argument in request.func.arguments.flat_positional if is_given(argument)]
    named = [f"{a.name}={_given(a)}" for a in request.func.arguments.flat_kwarg_only if is_given(a)]
    given = ", ".join([*positional, *named, "**more"])
    randoms = "".join(
        "        torch.randn(2, 3, dtype=torch.double, requires_grad=requires_grad),\n" for _ in parameters
    )
    made = f"(\n{randoms}    )" if parameters else "()"
    packet = f"torch.ops.aten.{request.func.name.name}"
    gradcheck = "from torch.autograd import gradcheck, gradgradcheck\n" if request.is_differentiable else ""
    return f'''\
"""{request.func.name}: TODO: what it computes, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
{gradcheck}from torch.library import opcheck

assert hasattr(torch, "_added_operators"), f"this torch, {{torch.__version__}}, has no added operators"

OPERATOR = {packet}.{request.func.name.overload_name or "default"}


def tensors(requires_grad: bool = False) -> tuple[Tensor, ...]:
    """The input tensors. TODO: choose shapes, dtypes and values: empty, strided and special ones, too."""
    torch.manual_seed(0)
    return {made}


def call(function: Callable[..., Any]{typed}, **more: Any) -> Any:
    """Call ``function`` with the schema's arguments. TODO: choose values for those that are not tensors."""
    return function({given})


def reference(*args: Any, **kwargs: Any) -> Any:
    """Return the expected result. TODO: compute it with NumPy or other operators."""
    raise NotImplementedError("TODO: the reference of {request.func.name}")
'''


def _values(request: Request) -> str:
    return """\
def test_values() -> None:
    result = call(OPERATOR, *tensors())
    torch.testing.assert_close(result, call(reference, *tensors()))
"""


def _inplace(request: Request) -> str:
    operator = _operator(request.inplace_func)
    at = _index_of_self(request)
    return f"""\
def test_in_place() -> None:
    expected = call(OPERATOR, *tensors())
    given = tensors()
    assert call({operator}, *given) is given[{at}]
    torch.testing.assert_close(given[{at}], expected)
"""


def _out(request: Request) -> str:
    operator = _operator(request.out_func)
    names = [argument.name for argument in request.out_func.arguments.out]
    if request.func.arguments.tensor_options is not None:
        return ""
    outs = ", ".join(
        f'"{name}": torch.empty_like(expected{f"[{i}]" if len(names) > 1 else ""})' for i, name in enumerate(names)
    )
    compared = f'outs["{names[0]}"]' if len(names) == 1 else "tuple(outs.values())"
    expected = "expected" if len(names) == 1 else "tuple(expected)"
    return f"""\
def test_out() -> None:
    expected = call(OPERATOR, *tensors())
    outs = {{{outs}}}
    call({operator}, *tensors(), **outs)
    torch.testing.assert_close({compared}, {expected})
"""


def _gradients(request: Request) -> str:
    # Composite operators get both kinds of derivatives from the operators they call.
    forward = ", check_forward_ad=True" if request.kind == "composite" else ""
    todo = "" if forward else "    # TODO: add check_forward_ad=True when each result has a formula.\n"
    return f"""\
def test_gradients() -> None:
    def operator(*given: Tensor) -> Any:
        return call(OPERATOR, *given)

    given = tensors(requires_grad=True)
{todo}    assert gradcheck(operator, given{forward})
    assert gradgradcheck(operator, given)
"""


def _compile() -> str:
    return """\
def test_compile() -> None:
    compiled = torch.compile(lambda *given: call(OPERATOR, *given), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors()), call(OPERATOR, *tensors()))
"""


def _opcheck() -> str:
    return """\
def test_opcheck() -> None:
    call(lambda *args, **kwargs: opcheck(OPERATOR, args, kwargs), *tensors())
"""


def _operator(func: FunctionSchema) -> str:
    return f"torch.ops.aten.{func.name.name}.{func.name.overload_name or 'default'}"


def _index_of_self(request: Request) -> int:
    """The index of ``self`` among the tensors that the tests pass."""
    before = request.tensors[: [argument.name for argument in request.tensors].index("self")]
    return sum(len(_tensor_names(argument)) for argument in before)


def _tensor_names(argument: Argument) -> list[str]:
    """The parameters for a tensor, or for two in a list."""
    if isinstance(argument.type, ListType):
        return [f"{argument.name}_{index}" for index in range(argument.type.size or 2)]
    return [f"{argument.name}_" if keyword.iskeyword(argument.name) else argument.name]


def is_given(argument: Argument) -> bool:
    """Return whether the tests pass this argument. Those with defaults keep them, except for tensors and what may
    precede them.
    """
    return argument.type.is_tensor_like() or argument.default is None


def _given(argument: Argument) -> str:
    if argument.type.is_tensor_like():
        names = _tensor_names(argument)
        return f"[{', '.join(names)}]" if isinstance(argument.type, ListType) else names[0]
    return value(argument.type)


def value(kind: Type) -> str:
    """Return a value for an argument that is not a tensor, as Python code."""
    if isinstance(kind, ListType):
        return f"[{', '.join([value(kind.elem)] * (kind.size or 2))}]"
    name = re.sub(r"\?$", "", str(kind))
    return _VALUES.get(name, "None") if not str(kind).endswith("?") else "None"
