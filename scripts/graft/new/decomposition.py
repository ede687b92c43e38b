"""The decomposition of a pointwise operator, with which Inductor fuses it with its neighbors."""

from __future__ import annotations

import re
from pathlib import Path

from torchgen.model import Argument

from .request import Request

FILE = "python/_decomp/decompositions.py"
_IMPORT = "from torch._prims_common.wrappers import elementwise_type_promotion_wrapper\n"
_TYPES = {"Scalar": "float", "SymInt": "int"}
_DEFAULTS = {
    "true": "True",
    "false": "False",
    "Mean": "1",
    "long": "torch.long",
    "contiguous_format": "torch.contiguous_format",
}
_KNOWN = frozenset({"Tensor", "float", "int", "bool", "str"})


def decomposition(request: Request, native: Path) -> str:
    """Return the text to append to ``FILE`` of ``native``; empty unless the operator is pointwise.

    Args:
        request: the requested operator.
        native: the native folder, which may contain the file.
    """
    if request.kind != "pointwise":
        return ""
    path = native / FILE
    head = "" if path.is_file() and _IMPORT in path.read_text(encoding="utf-8") else f"{_IMPORT}\n\n"
    tensors = ", ".join(f'"{argument.name}"' for argument in request.tensors)
    promoting = f"({tensors},)" if len(request.tensors) == 1 else f"({tensors})"
    return f'''\
{head}@register_decomposition({_overloads(request)})
@out_wrapper()
@elementwise_type_promotion_wrapper(
    type_promoting_args={promoting},
    type_promotion_kind=utils.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
)
def {request.name}({_parameters(request)}) -> Tensor:
    # TODO: compute the same with other operators, so that Inductor can fuse it with its neighbors.
    raise NotImplementedError("{request.func.name}(): TODO: write the decomposition in {FILE}, or delete it")
'''


def _overloads(request: Request) -> str:
    """Every overload of a new name. If the name has others, the overload and its out= variant."""
    if not request.func.name.overload_name:
        return f"aten.{request.func.name.name}"
    return f"[aten.{request.func.name}, aten.{request.out_func.name}]"


def _parameters(request: Request) -> str:
    arguments = request.func.arguments
    named = [_parameter(argument) for argument in arguments.flat_kwarg_only]
    return ", ".join([*map(_parameter, arguments.flat_positional), *(["*", *named] if named else [])])


def _parameter(argument: Argument) -> str:
    name = re.sub(r"\?$", "", str(argument.type))
    kind = _TYPES.get(name, name)
    annotation = f": {kind}{' | None' if str(argument.type).endswith('?') else ''}" if kind in _KNOWN else ""
    if argument.default is None:
        return f"{argument.name}{annotation}"
    default = python_default(argument.default)
    return f"{argument.name}{annotation} = {default}" if annotation else f"{argument.name}={default}"


def python_default(text: str) -> str:
    """Format a schema's default in Python."""
    return _DEFAULTS.get(text, text)
