"""The entry for ``samples.py``: inputs derived from the schema, for an OpInfo of the operator."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from torchgen.model import Argument, ListType

from ..inputs.native import SAMPLES
from .decomposition import python_default
from .python_test import is_given, value
from .request import Request

_HEAD = '''\
"""Sample inputs: a function for each operator. make(*shape) returns a tensor of the dtype under test."""

import torch

# The properties of each operator, as arguments of PyTorch's OpInfo.
OPINFO = {}
'''
_SHAPES = ("2, 3", "0, 3")
# It is commented out: until it is completed, the tests report that values are not compared.
_TODO = """

# TODO: write a reference in NumPy or plain torch; it gets double precision. List inputs that raise errors.
# def {name}_reference({parameters}):
#     return input.numpy()
#
#
# def {name}_errors(make):
#     yield ({wrong}), "a part of the message"  # and the error's type, unless it is RuntimeError
#
# TODO: state the properties. Without dtypes, the tests find them by calling the operator.
# {opinfo}
"""


def samples_entry(request: Request, native: Path, known: set[str]) -> str:
    """Return the text to append to the ``samples.py`` of ``native``; empty if the operator gets no OpInfo or has
    samples.

    Args:
        request: the requested operator.
        native: the native folder.
        known: the names of PyTorch's own operators.
    """
    name = str(request.func.name.name)
    path = native / SAMPLES
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not request.tensors or name.startswith("_") or name in known or _defines(text, name):
        return ""
    given = _given(request, _SHAPES[0])
    lines = [_yielded(_given(request, shape)) for shape in _SHAPES]
    imports = "    import torch\n\n" if text and "torch." in lines[0] else ""
    function = f"def {name}(make):\n    # TODO: choose shapes and values.\n{imports}{''.join(lines)}"
    function += _TODO.format(
        name=name,
        parameters=_parameters(request),
        wrong=f"{given[0]}," if len(given) == 1 else ", ".join(given),
        opinfo=_opinfo(request, text or _HEAD),
    )
    return function if text else f"{_HEAD}\n\n{function}"


def _defines(text: str, name: str) -> bool:
    """Return whether Python code assigns or defines ``name``. ``make check`` reports invalid Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return True
    return re.search(rf"^(def )?{name}\b", text, re.M) is not None


def _opinfo(request: Request, text: str) -> str:
    """Return the line that states properties, for a file with ``text`` before it."""
    name = str(request.func.name.name)
    stated = f'{{"dtypes": {{torch.float, torch.double}}, "supports_out": {request.out}, "supports_forward_ad": True}}'
    return f'OPINFO["{name}"] = {stated}' if "OPINFO" in text else f'OPINFO = {{"{name}": {stated}}}'


def _parameters(request: Request) -> str:
    """Return the parameters of the reference."""
    arguments = request.func.arguments
    named = [_parameter(argument) for argument in arguments.flat_kwarg_only]
    return ", ".join([*map(_parameter, arguments.flat_positional), *(["*", *named] if named else [])])


def _parameter(argument: Argument) -> str:
    name = "input" if argument.name == "self" else argument.name
    return name if argument.default is None else f"{name}={python_default(argument.default)}"


def _yielded(given: list[str]) -> str:
    return f"    yield ({given[0]},)\n" if len(given) == 1 else f"    yield {', '.join(given)}\n"


def _given(request: Request, shape: str) -> list[str]:
    """Return the arguments of one sample; those after the ``*`` form a dictionary."""
    arguments = request.func.arguments
    values = [_value(argument, shape) for argument in arguments.flat_positional if is_given(argument)]
    named = [f'"{a.name}": {_value(a, shape)}' for a in arguments.flat_kwarg_only if is_given(a)]
    if named:
        values.append(f"{{{', '.join(named)}}}")
    return values


def _value(argument: Argument, shape: str) -> str:
    if not argument.type.is_tensor_like():
        return value(argument.type)
    tensor = f"make({shape})"
    if isinstance(argument.type, ListType):
        return f"[{', '.join([tensor] * (argument.type.size or 2))}]"
    return tensor
