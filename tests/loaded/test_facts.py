"""Code that was compiled with what an edit changed, for each kind of file: eager and compiled code agree, here and in a
new process, which has the disk caches of this one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sessions import Folder, Session

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


@pytest.mark.parametrize("kind", FOLDERS)
def test_compiled_code_follows_each_file(where: Path, kind: str) -> None:
    texts, expression, is_slope = FOLDERS[kind]
    folder = Folder(where / kind.replace(" ", "_") / "facts", {})
    found = []
    with Session(where) as session:
        session.run(f"{SETUP}\ndef function(x): return {expression}\nkept = torch.compile(function)")
        for number in (3, 5, 3):
            folder.become({name: text.replace("FACTOR", str(number)) for name, text in texts.items()})
            session.load(folder.path)
            expected = session.value(f"shown(function, {is_slope})") if is_slope else [number * 2.0] * 2
            found.append(expected)
            assert session.value(f"shown(kept, {is_slope})") == expected
            with Session(where) as fresh:
                fresh.run(f"{SETUP}\ndef function(x): return {expression}")
                fresh.load(folder.path)
                assert fresh.value(f"shown(torch.compile(function), {is_slope})") == expected
        assert found[0] == found[2] != found[1]
        session.run("graft.unload('facts')")
        if "fact" not in expression:
            stock = session.value(f"shown(function, {is_slope})")
            assert session.value(f"torch.allclose(torch.tensor(shown(kept, {is_slope})), torch.tensor({stock}))")
