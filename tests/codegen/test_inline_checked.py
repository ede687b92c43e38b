"""What ``load_inline`` makes of a schema and of C++, as torchgen, the check and new-op see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import said_of
from graft.check.base import BaseOperators
from graft.new.__main__ import scaffold
from graft.session.inline import Texts
from test_scaffold import SCHEMAS

KERNEL = """
#include <ATen/ops/tanh.h>

Tensor in_soft(const Tensor& self, const Scalar& limit) {
  return at::tanh(self.div(limit)).mul(limit);
}
"""
SCHEMA = "in_soft(Tensor self, Scalar limit=1) -> Tensor"
FORMULA = """
    - name: in_soft(Tensor self, Scalar limit=1) -> Tensor
      self: grad * (1 - (result / limit).pow(2))
"""

PLAIN = [schema for kind, variants, schema in SCHEMAS if kind == "plain" and "inplace" not in variants]
MORE = [
    "in_a.mine(Tensor input, *, Tensor self) -> Tensor",
    "in_b(int n, Tensor self) -> (Tensor, Tensor)",
    "in_c(Tensor? self, SymInt[2] size, str mode='Tensor self') -> Tensor",
    "in_d(Tensor x, str how='SymInt') -> Tensor",
    "in_e(Tensor x, *, Tensor[] others, Generator? generator=None) -> int",
    "fft_in_f(Tensor self) -> int",
    "  in_g(\n  Tensor self,\n  Tensor[] others\n) -> Tensor[]\n",
    "in_h(Tensor[] self, int[] n=[1, 2]) -> ()",
]


@pytest.mark.parametrize("schema", [*PLAIN, *MORE])
def test_schema_becomes_the_entry_that_new_op_writes(base: Path, tmp_path: Path, schema: str) -> None:
    written = scaffold(base, tmp_path, schema, "plain", set())["native_functions.yaml"]
    assert Texts(schema, cpp="x").files()["native_functions.yaml"] == written


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("const Scalar&", "const double&", "InSoft.cpp:4: `Tensor in_soft(const Tensor&, const double&)` is not"),
        ("in_soft", "soft", "native_functions.yaml:3:3: no file of the folder defines at::native::in_soft"),
        ("Tensor in", "static Tensor in", "InSoft.cpp:4: `Tensor in_soft(const Tensor&, const Scalar&)`, the kernel"),
    ],
)
def test_line_of_a_finding_is_the_user_s(known: BaseOperators, tmp_path: Path, old: str, new: str, said: str) -> None:
    lines = said_of(tmp_path, known, Texts(SCHEMA, FORMULA, KERNEL.replace(old, new, 1)).files())
    assert [line for line in lines if line.startswith(said)], lines


def test_entries_may_have_no_dispatch(known: BaseOperators, tmp_path: Path) -> None:
    """They are composite, and the kernels have the names of the operators."""
    functions = """
        - func: in_one(Tensor self) -> Tensor
        - func: in_two(Tensor self) -> Tensor
          variants: function, method
    """
    cpp = "Tensor in_one(const Tensor& self) { return self.neg(); }\n"
    cpp += "namespace { int helper() { return 1; } }\nTensor in_two(const Tensor& self) { return self.add(helper()); }"
    texts = Texts(functions, cpp=cpp)
    assert said_of(tmp_path, known, texts.files()) == []
    assert texts.name == "in_one"
    (line,) = said_of(tmp_path, known, Texts(functions.replace("Tensor self", "Tenser self", 1), cpp=cpp).files())[:1]
    assert line.startswith("native_functions.yaml:2:"), "the line in the text"
