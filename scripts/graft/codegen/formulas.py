"""Derivative formulas as functions in a source of their own, so that after an edit of a formula only that is compiled.

torchgen writes formulas into the autograd nodes and kernels, which need the most headers of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from . import torchgen
from .output import Drafts
from .torchgen import ForwardDerivative, NativeFunction, NativeFunctionWithDifferentiabilityInfo, cpp

NODES, KERNELS, FORMULAS = "autograd/Functions.cpp", "autograd/VariableType.cpp", "autograd/Formulas.cpp"

# The namespace of functions for forward-mode formulas.
TANGENTS = "torch::autograd::tangents"

_HEAD = """#include <torch/csrc/autograd/FunctionsManual.h>

using namespace torch::autograd::generated::details;
using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using at::TensorList;

"""

# The types of arguments that have one tangent.
_OF_TENSORS = ("Tensor", "Tensor?")

# What the kernels use, in which torchgen writes forward-mode formulas.
_USING = ("using namespace at;", "using namespace torch::autograd::generated;")

# The function of a node that computes its gradients, and depends on nothing else (FUNCTION_DEFINITION in PyTorch's
# tools/autograd/gen_autograd_functions.py).
_APPLY = re.compile(r"^static (variable_list \w+_apply_functional\([^{]*\))\n\{\n.*?^\}\n", re.M | re.S)

# The method of each node. Before PyTorch 2.7 it has the formulas.
_NODE = re.compile(r"^variable_list \w+::apply\(", re.M)


class Tangents:
    """The functions for forward-mode formulas: what declares them and what defines them."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.defined: list[str] = []

    def called(
        self, functions: Iterable[NativeFunctionWithDifferentiabilityInfo]
    ) -> list[NativeFunctionWithDifferentiabilityInfo]:
        """Return the functions with calls in place of forward-mode formulas."""
        return [
            replace(
                each,
                fw_derivatives={
                    key: [self._called(each.func, key, derivative) for derivative in of_key]
                    for key, of_key in each.fw_derivatives.items()
                },
            )
            if each.fw_derivatives
            else each
            for each in functions
        ]

    def _called(self, f: NativeFunction, key: str, derivative: ForwardDerivative) -> ForwardDerivative:
        if not _is_plain(f, derivative):
            return derivative
        formula = derivative.formula
        with torchgen.native_function_manager(f):
            used = {name: type_ for name, type_ in _variables(f, derivative) if re.search(rf"\b{name}\b", formula)}
        variant = "" if key == "Default" else f"{key}_"
        name = f"{f.func.name.unambiguous_name()}__{variant}{derivative.var_names[0]}"
        function = f"at::Tensor {name}({', '.join(f'{type_} {each}' for each, type_ in used.items())})"
        self.declared.append(f"{function};")
        self.defined.append(f"{function} {{\n  return {formula};\n}}")
        return replace(derivative, formula=f"{TANGENTS}::{name}({', '.join(used)})")


def _is_plain(f: NativeFunction, derivative: ForwardDerivative) -> bool:
    """Return whether a formula computes one tensor of variables that ``_variables`` yields. Those of lists of tensors
    are in loops, and `out=` has no forward mode.
    """
    if f.func.is_out_fn() or str(f.func.name).startswith("_foreach_"):
        return False
    lists = [a.name for a in f.func.arguments.flat_all if str(a.type) not in _OF_TENSORS]
    is_one = len(derivative.var_names) == 1 and str(derivative.var_types[0]) == "Tensor"
    uses_lists = any(re.search(rf"\b{name}_[tp]\b", derivative.formula) for name in lists)
    return is_one and not uses_lists


def _variables(f: NativeFunction, derivative: ForwardDerivative) -> Iterator[tuple[str, str]]:
    """Yield the variables that a formula may use, with their types (emit_fw_derivatives in gen_variable_type.py)."""
    tensor = "const at::Tensor &"
    tensors = [a.name for a in f.func.arguments.flat_all if str(a.type) in _OF_TENSORS]
    for name in [*tensors, "original_self"]:
        yield from ((f"{name}_{kind}", tensor) for kind in ("t", "t_raw", "p"))
    for argument in f.func.schema_order_arguments():
        yield argument.name, cpp.argument_type(argument, binds=argument.name, symint=True).cpp_type()
    for name, result in zip(cpp.return_names(f), f.func.returns, strict=True):
        yield name, f"const {cpp.return_type(result, symint=True).remove_const_ref().cpp_type()} &"


def is_divided(name: str) -> bool:
    """Return whether torchgen writes formulas into a file."""
    return name in (NODES, KERNELS)


def divide(out: Drafts, tangents: Tangents) -> None:
    """Move the formulas out of the generated nodes and kernels."""
    applied: list[str] = []

    def declared(function: re.Match[str]) -> str:
        applied.append(function[0].removeprefix("static "))
        return f"{function[1]};\n"

    nodes = out.texts.get(NODES, "")
    if len(_APPLY.findall(nodes)) == len(_NODE.findall(nodes)):
        out.texts |= {NODES: _APPLY.sub(declared, nodes)} if nodes else {}
    if tangents.declared:
        out.texts[KERNELS] = f"#include <ATen/core/Tensor.h>\n{_in(TANGENTS, tangents.declared)}{out.texts[KERNELS]}"
    if applied or tangents.defined:
        texts = _in("torch::autograd::generated", applied) + _in(TANGENTS, tangents.defined, _USING)
        out.texts[FORMULAS] = _HEAD + texts


def _in(namespace: str, lines: list[str], first: Iterable[str] = ()) -> str:
    """Return a namespace with these lines; an empty text if there are none."""
    return "\n".join([f"namespace {namespace} {{", *first, *lines, f"}} // namespace {namespace}\n"]) if lines else ""
