"""Functions of a pybind11 module as operators: with the pybind11 of the official torch, and its ``torch.library``."""

from __future__ import annotations

import pytest
from graft.core.layout import PACKAGES
from helpers import write
from users import Environment

pytestmark = pytest.mark.slow

_SOURCE = """
#include <torch/csrc/utils/pybind.h>
#include <ATen/ATen.h>

enum class Mode { zero, one };

PYBIND11_MODULE(_C, m) {
  py::enum_<Mode>(m, "Mode").value("zero", Mode::zero).value("one", Mode::one);
  py::class_<std::vector<float>>(m, "Box");
  m.def("plus", [](const at::Tensor& x, int64_t n, double p) { return x + n * p; }, "Adds.", py::arg("x"),
        py::arg("n") = 1, py::arg("p") = 1e-1);
  m.def("plus", [](const at::Tensor& x, const std::string& s) { return x + s.size(); });
  m.def("parts", [](std::vector<at::Tensor> xs, std::optional<at::Tensor> w, Mode mode, std::vector<Mode> modes) {
    xs.push_back(at::full({}, int(mode) * 10 + int(modes.at(0))));
    return std::make_tuple(xs, w, 1.5, int64_t(xs.size()));
  }, py::arg("xs"), py::arg("w") = py::none(), py::arg("mode") = Mode::one, py::kw_only(), py::arg("modes"));
  m.def("write", [](const at::Tensor& x, at::Tensor out) { out.copy_(x); }, py::arg("x"), py::kw_only(),
        py::arg("out"));
  m.def("same", [](at::Tensor x) { return x; });
  m.def("hash", [](py::object x) { return 1; });
  m.def_submodule("inner").def("twice", [](at::Tensor x) { return x * 2; });
}
"""

_FAKES = "def plus(x, n=1, p=0.1):\n    return x.new_empty(x.shape)\n"

_START = """
import sys
before = list(sys.modules)
import torch
sys.path.insert(0, {packages!r})
import their
from graft.adopt.pybind import PybindChoices, registered
from graft.adopt.pybind_found import found_in, modules_of
found = registered("their", found_in(modules_of("their", before)), PybindChoices(
    writes={{"write": ["out"]}}, fakes={{"plus": "their.fakes:plus"}}))
assert not found.mistakes
exec(compile(found.text, "adopted", "exec"), {{}})
ops = torch.ops.their
x = torch.arange(3.0)
"""


@pytest.fixture(scope="module")
def extended(environment: Environment) -> Environment:
    """An environment with the package ``their``, whose ``_C`` is a pybind11 module."""
    folder = write(environment.packages / "their", {"__init__.py": "from . import _C\n", "fakes.py": _FAKES})
    include, suffix = environment.run(
        "import sysconfig as s; print(s.get_paths()['include'], s.get_config_var('EXT_SUFFIX'))"
    ).stdout.split()
    environment.compile(_SOURCE, folder / f"_C{suffix}", "-shared", f"-I{include}", "-ltorch_python")
    return environment


def _run(extended: Environment, code: str) -> None:
    extended.run(_START.format(packages=str(PACKAGES)) + code)


def test_calls(extended: Environment) -> None:
    code = """
assert [each.schema for each in found.operators] == [
    "plus(Tensor x, int n=1, float p=0.1) -> Tensor",
    "plus.Tensor_str(Tensor arg0, str arg1) -> Tensor",
    "parts(Tensor[] xs, Tensor? w=None, int mode=1, *, int[] modes) -> (Tensor[], Tensor?, float, int)",
    "write(Tensor x, *, Tensor(a!) out) -> ()",
    "same(Tensor arg0) -> Tensor",
    "twice(Tensor arg0) -> Tensor",
], found.operators
assert dict(found.left_out) == {"their._C:hash": "arg0: object is no type of schemas", "their._C.Box": "a class"}
assert torch.equal(ops.plus(x), x + 0.1) and torch.equal(ops.plus(x, 3, p=2.0), x + 6)
assert torch.equal(ops.plus(x, "ab"), x + 2)
xs, w, number, count = ops.parts([x], modes=[0])
assert w is None and (number, count) == (1.5, 2) and torch.equal(xs[0], x) and xs[1].item() == 10
xs, w, *_ = ops.parts([], x, their._C.Mode.zero, modes=[their._C.Mode.one])
assert torch.equal(w, x) and xs[0].item() == 1
out = torch.zeros(3)
assert ops.write(x, out=out) is None and torch.equal(out, x)
assert torch.equal(ops.twice(x), 2 * x)
"""
    _run(extended, code)


def test_gradients_are_refused(extended: Environment) -> None:
    code = """
y = x.clone().requires_grad_()
with torch.no_grad():
    assert not ops.plus(y).requires_grad
for result, name in (ops.plus(y), "plus"), (ops.parts([y], modes=[0])[0][0], "parts"), (ops.plus(y, "ab"), "plus"):
    assert result.requires_grad
    try:
        result.sum().backward()
    except RuntimeError as error:
        assert f"their::{name}" in str(error) and "has no gradient" in str(error), error
    else:
        raise AssertionError(name)
"""
    _run(extended, code)


def test_fakes_and_opcheck(extended: Environment) -> None:
    code = """
from torch.library import opcheck
opcheck(ops.plus.default, (x,))
opcheck(ops.plus.default, (x, 2, 3.0))
out = torch.zeros(3)
opcheck(ops.write.default, (x,), {"out": out})
compiled = torch.compile(lambda x: ops.plus(x * 2) + 1, backend="aot_eager", fullgraph=True)
assert torch.allclose(compiled(x), 2 * x + 1.1)
try:  # no schema says that a result is an argument; opcheck does
    opcheck(ops.same.default, (x,), test_utils="test_schema")
except Exception as error:
    assert "alias" in str(error), error
else:
    raise AssertionError("same")
with torch._subclasses.FakeTensorMode():
    fake = torch.empty(3)
    ops.write(fake, out=fake)
    try:  # no kernel is taken for a fake
        ops.twice(fake)
    except Exception as error:
        assert type(error).__name__ == "UnsupportedOperatorException", error
    else:
        raise AssertionError("twice")
"""
    _run(extended, code)
