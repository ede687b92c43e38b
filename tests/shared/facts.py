"""Folders with files that compilers bake in, each with an edit."""

from __future__ import annotations

HELPER = """#include <ATen/ATen.h>
#include <torch/csrc/autograd/FunctionsManual.h>
namespace torch::autograd::generated::details {
FUNCTION
}
"""

# Each folder's texts, with FACTOR where an edit is; a function of `x`; and whether its gradient is what changes.
FOLDERS = {
    "a function that its own formula calls": (
        {
            "native_functions.yaml": (
                "- func: fact(Tensor self) -> Tensor\n  dispatch:\n    CompositeExplicitAutograd: fact\n"
            ),
            "derivatives.yaml": "- name: fact(Tensor self) -> Tensor\n  self: fact_slope(grad, self)\n",
            "Fact.cpp": "#include <ATen/ATen.h>\nnamespace at::native {\n"
            "Tensor fact(const Tensor& self) { return self * self; }\n}\n",
            "FunctionsManual.h": "#pragma once\n#include <ATen/core/Tensor.h>\n"
            "namespace torch::autograd::generated::details {\n"
            "at::Tensor fact_slope(const at::Tensor& grad, const at::Tensor& self);\n}\n",
            "FunctionsManual.cpp": HELPER.replace(
                "FUNCTION",
                "Tensor fact_slope(const Tensor& grad, const Tensor& self) { return grad * FACTOR * self; }",
            ),
        },
        "torch.fact(x)",
        True,
    ),
    "a function that PyTorch's formulas call": (
        {
            "FunctionsManual.cpp": HELPER.replace(
                "FUNCTION",
                "Tensor prod_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {\n"
                "  return grad * FACTOR * result / input;\n}",
            )
        },
        "x.prod()",
        True,
    ),
    "a decomposition of Inductor's": (
        {
            "python/_inductor/decomposition.py": (
                "@register_decomposition([aten.digamma])\ndef digamma(x):\n    return x * FACTOR\n"
            )
        },
        "torch.digamma(x)",
        False,
    ),
}

SETUP = """
x = torch.full((2,), 2., requires_grad=True)
def shown(function, is_slope):
    result = function(x)
    return (torch.autograd.grad(result.sum(), x)[0] if is_slope else result).tolist()
"""


def texts_of(kind: str, number: int) -> dict[str, str]:
    """Return the texts of a folder with a number where the edit is."""
    texts, _, _ = FOLDERS[kind]
    return {name: text.replace("FACTOR", str(number)) for name, text in texts.items()}
