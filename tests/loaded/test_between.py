"""Operators of one load in another: formulas and kernels call them, and a cell takes one over from another cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import write
from sessions import Session

BEGINNING = '''
import subprocess, sys

def backward(factor=2, more="", schema=""):
    graft.load_cell(
        f"Tensor doubled_backward(const Tensor& grad{more}) {{ return grad * {factor}; }}",
        f"doubled_backward(Tensor grad{schema}) -> Tensor",
    )

def forward(formula="doubled_backward(grad)"):
    graft.load_cell(
        f"// self: {formula}\\nTensor doubled(const Tensor& self) {{ return self * 2; }}",
        "doubled(Tensor self) -> Tensor",
    )

BOTH = """/* yaml
- func: doubled(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: doubled
- func: doubled_backward(Tensor grad) -> Tensor
  dispatch:
    CompositeExplicitAutograd: doubled_backward
- name: doubled(Tensor self) -> Tensor
  self: doubled_backward(grad)
*/
Tensor doubled(const Tensor& self) { return self * 2; }
Tensor doubled_backward(const Tensor& grad) { return grad * 5; }
"""

TWO = """/* yaml
- func: doubled(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: doubled
- func: added(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: added
- func: trace(Tensor self) -> Tensor
  replace: True
  dispatch:
    CPU: forty_two
- name: doubled(Tensor self) -> Tensor
  self: doubled_backward(grad)
*/
Tensor doubled(const Tensor& self) { return self * 2; }
Tensor added(const Tensor& self) { return self + 1; }
Tensor forty_two(const Tensor& self) { return self.sum() * 0 + 42; }
"""
DOUBLED = "Tensor doubled(const Tensor& self) { return self * 2; }"

x = torch.ones(2, requires_grad=True)

def gradient():
    return torch.autograd.grad(torch.doubled(x).sum(), x)[0].tolist()

from graft.session.api import Operators

def has():
    return {name: dir(Operators(name)) for name in graft.loaded()}

CHILD = """import torch
x = torch.ones(2, requires_grad=True)
torch.doubled(x).sum().backward()
print(x.grad.tolist())
"""

def in_child(code=CHILD):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() + done.stderr.strip().rpartition("\\n")[2]
'''


@pytest.fixture
def session(only: Session) -> Iterator[Session]:
    """The session, with nothing loaded."""
    yield only
    only.run("for name in list(graft.loaded()): graft.unload(name)")
    only.said()


def test_compiles_a_formula_that_calls_an_operator_of_another_cell(session: Session) -> None:
    session.run("backward(); forward()")
    assert session.value("gradient()") == [2.0, 2.0]
    session.run("backward(3)")  # only that is built again
    assert session.value("gradient()") == [3.0, 3.0]
    assert session.value("in_child()") == "[3.0, 3.0]"
    session.run("graft.unload('doubled_backward')")
    assert "doubled_backward" in session.error("gradient()")
    session.run("backward(4)")
    assert session.value("gradient()") == [4.0, 4.0]


@pytest.mark.slow
def test_compiles_what_calls_an_operator_with_a_new_schema(session: Session) -> None:
    session.run("backward(); forward()")
    session.run("backward('factor', ', double factor', ', float factor=7')")  # its callers fit as they are
    assert session.value("gradient()") == [7.0, 7.0]
    session.said()
    session.run("backward('other', ', const Tensor& other', ', Tensor other')")
    said = session.said()
    assert "doubled: it calls an operator that has another schema now, and was not built again: " in said
    assert "doubled_backward" in session.error("gradient()")
    session.run("forward('doubled_backward(grad, at::ones_like(grad) * 8)')")
    assert session.value("gradient()") == [8.0, 8.0]


def test_compiles_a_cell_that_takes_operators_over(session: Session) -> None:
    session.run("backward(); forward()")
    session.said()
    session.run("graft.load_cell(BOTH, name='both')")
    said = session.said()
    for name in ("doubled", "doubled_backward"):
        assert f"aten::{name}: taken over from the cell {name}, which had nothing else and is unloaded" in said
    assert session.value("has()") == {"both": ["doubled", "doubled_backward"]}
    assert session.value("gradient()") == [5.0, 5.0]
    session.run("backward(6)")
    assert "aten::doubled_backward: taken over from the cell both\n" in session.said()
    assert session.value("has()") == {"both": ["doubled"], "doubled_backward": ["doubled_backward"]}
    assert session.value("gradient(), in_child()") == ([6.0, 6.0], "[6.0, 6.0]")
    session.run("graft.load_cell(BOTH, name='both')")
    assert session.value("has()") == {"both": ["doubled", "doubled_backward"]}
    assert session.value("gradient(), in_child()") == ([5.0, 5.0], "[5.0, 5.0]")
    session.run("backward(6); gradient()")
    code = "Tensor doubled_backward(const Tensor& grad) { return grad * 7; }"
    session.run(f"graft.load_cell({code!r}, 'doubled_backward(Tensor grad) -> Tensor', name='third')")
    assert session.value("has()") == {"both": ["doubled"], "third": ["doubled_backward"]}
    assert session.value("gradient(), in_child()") == ([7.0, 7.0], "[7.0, 7.0]")
    session.run("graft.unload('third')")
    assert session.value("hasattr(torch, 'doubled_backward'), torch.doubled(x).tolist()") == (False, [2.0, 2.0])
    assert "doubled_backward" in session.run("in_child()")
    assert session.value("in_child('import torch; print(hasattr(torch, \"doubled_backward\"))')") == "False"


@pytest.mark.slow
def test_compiles_what_keeps_what_it_has(session: Session) -> None:
    """A cell that is built again takes nothing back; one without operators keeps the kernels that it replaces."""
    session.run("backward()")
    session.run("graft.load_cell(TWO, name='two')")
    session.run(
        "graft.load_cell('Tensor added(const Tensor& self) { return self + 2; }', 'added(Tensor self) -> Tensor')"
    )
    assert session.value("torch.added(x).tolist(), torch.trace(torch.eye(2)).item()") == ([3.0, 3.0], 42.0)
    session.run("backward('factor', ', double factor', ', float factor=7')")
    assert session.value("gradient(), torch.added(x).tolist()") == ([7.0, 7.0], [3.0, 3.0])
    session.run("graft.load_cell(DOUBLED, 'doubled(Tensor self) -> Tensor')")
    assert session.value("torch.trace(torch.eye(2)).item(), sorted(has())") == (
        42.0,
        ["added", "doubled", "doubled_backward", "two"],
    )


def test_others_take_nothing_over_and_are_refused_before_they_compile(session: Session, where: Path) -> None:
    session.run("backward()")
    code = "Tensor doubled_backward(const Tensor& grad) { return not C++; }"
    said = session.error(f"graft.load_inline('doubled_backward(Tensor grad) -> Tensor', cpp={code!r}, name='other')")
    assert "aten::doubled_backward: the load doubled_backward" in said and 'graft.unload("doubled_backward")' in said
    entry = "- func: doubled_backward(Tensor grad) -> Tensor\n"
    folder = write(where / "mine", {"native_functions.yaml": entry, "Mine.cpp": code})
    said = session.error(f"graft.load({str(folder)!r})")
    assert f"{folder}/native_functions.yaml:1: aten::doubled_backward: the load doubled_backward" in said


@pytest.mark.slow
def test_compiles_a_kernel_that_calls_an_operator_of_another_load(session: Session, where: Path) -> None:
    session.run("backward()")
    code = """#include <ATen/core/Tensor.h>
#include <ATen/ops/doubled_backward.h>
#include <ATen/ops/four_times_native.h>
namespace at::native {
Tensor four_times(const Tensor& self) { return at::doubled_backward(at::doubled_backward(self)); }
} // namespace at::native
"""
    entry = "- func: four_times(Tensor self) -> Tensor\n"
    folder = write(where / "four", {"native_functions.yaml": entry, "Four.cpp": code})
    session.run(f"graft.load({str(folder)!r})")
    assert session.value("torch.four_times(x).tolist()") == [4.0, 4.0]
