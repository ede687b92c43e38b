"""Find the derivative formula of an operator whose backward is one call. Runs with the Python that has the extension:
it traces the backward on made-up inputs, and reads the call from the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

# Shapes to try for the inputs, the likeliest first. All tensors of a call have the same shape.
_SHAPES = ((3, 4), (4,), (2, 3, 4), (1, 2, 4, 4))
# Made-up values, by type. Numbers differ by position, so that the graph shows which argument each of them is.
_NUMBERS: dict[str, Any] = {"float": lambda i: 0.37 + i / 8, "int": lambda i: 2 + i, "bool": lambda i: False}


def formula_of(name: str, overload: str) -> tuple[list[str], str, list[str]] | None:
    """Return the differentiable arguments of an operator, the operator that its backward calls, and the arguments of
    that call in C++; None if its backward is not a single call, or if no made-up input fits.
    """
    namespace, op = name.split("::")
    found = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
    schema = found._schema
    if [str(each.type) for each in schema.returns] != ["Tensor"] or any(each.kwarg_only for each in schema.arguments):
        return None
    for shape in _SHAPES:
        try:
            return _traced(found, _inputs(schema, shape))
        except Exception:  # whatever the extension raises: these inputs do not fit, or its backward is no single call
            continue
    return None


def _inputs(schema: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return made-up inputs, by argument."""
    values: dict[str, Any] = {}
    for i, argument in enumerate(schema.arguments):
        kind = str(argument.type)
        if kind == "Tensor":
            values[argument.name] = torch.rand(shape, requires_grad=True)
        elif kind in _NUMBERS:
            values[argument.name] = _NUMBERS[kind](i)
        elif argument.has_default_value():
            values[argument.name] = argument.default_value
        else:
            raise ValueError(f"no input for {argument.name}")
    return values


def _traced(found: Any, values: dict[str, Any]) -> tuple[list[str], str, list[str]]:
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors = [name for name, value in values.items() if isinstance(value, torch.Tensor)]

    def backward(grad: torch.Tensor, *given: torch.Tensor) -> Any:
        result = found(*(values | dict(zip(tensors, given, strict=True))).values())
        return torch.autograd.grad(result, given, grad, allow_unused=True)

    given = [values[name] for name in tensors]
    graph = make_fx(backward)(torch.rand_like(found(*values.values())), *given).graph
    known = dict(zip((node for node in graph.nodes if node.op == "placeholder"), ["grad", *tensors], strict=True))
    known |= {node: "result" for node in graph.nodes if node.target is found}
    (outputs,) = next(node.args for node in graph.nodes if node.op == "output")
    named = {name: _origin(node) for name, node in zip(tensors, outputs, strict=True) if node is not None}
    calls, positions = zip(*map(_call, named.values()), strict=True)
    if len({*calls}) != 1 or (positions != (None,) and positions != tuple(range(len(positions)))):
        raise ValueError("more than one call")
    call = calls[0]
    if call.kwargs:
        raise ValueError("arguments by name")
    numbers = {name: value for name, value in values.items() if name not in tensors}
    return [*named], call.target.name(), list(_words(call.args, known, numbers))


def _origin(node: Any) -> Any:
    """Return the node that computes a tensor, without the calls of ``detach`` after it."""
    while node.target is torch.ops.aten.detach.default:
        (node,) = node.args
    return node


def _call(node: Any) -> tuple[Any, int | None]:
    """Return the operator call that makes a tensor, and the tensor's position if there are several results."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node, None
    return node.args[0], node.args[1]  # the node takes one result from a tuple


def _words(arguments: Any, known: dict[Any, str], numbers: dict[str, Any]) -> Iterator[str]:
    for value in arguments:
        if isinstance(value, torch.fx.Node):
            yield known[_origin(value)]
        elif names := [name for name, number in numbers.items() if type(number) is type(value) and number == value]:
            (name,) = names
            yield name
        elif isinstance(value, bool):
            yield str(value).lower()
        elif isinstance(value, int | float):
            yield repr(value)
        else:
            raise ValueError(f"no word for {value}")
