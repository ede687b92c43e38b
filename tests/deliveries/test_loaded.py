"""Operators that PyTorch, another delivery of Graft, another load or another package has already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from clipped import CUBED, CUBED_ENTRY, INLINE, SMALL
from graft.core.layout import PACKAGES
from helpers import kernel
from sessions import Folder, Session
from users import Environment, make, thin_wheel

TRACE = {
    "native_functions.yaml": "- func: trace(Tensor self) -> Tensor\n  replace: True\n  dispatch:\n    CPU: own_trace\n",
    "derivatives.yaml": "- name: log1p(Tensor self) -> Tensor\n  replace: True\n  self: 7 * grad\n"
    "  result: auto_linear\n",
    "Trace.cpp": kernel("trace", "const Tensor& self", "return self.sum().mul(5);").replace("trace(", "own_trace("),
    "cpu/DigammaKernel.cpp": """#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/DispatchStub.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/cpu/Loops.h>

namespace at::native {

static void own_digamma(TensorIteratorBase& iter) {
  cpu_kernel(iter, [](float a) -> float { return a * 3; });
}

REGISTER_DISPATCH(digamma_stub, &own_digamma)

} // namespace at::native
""",
}

TOOLS = """
from torch import _graft
leaf = torch.ones(2, requires_grad=True)

def results():
    return [torch.trace(torch.ones(2, 2)).item(), round(torch.digamma(torch.ones(1)).item(), 3),
            torch.autograd.grad(torch.log1p(leaf).sum(), leaf)[0][0].item()]
"""

CALL = "stock::of(digamma_stub)(kCPU, iter)"

# With PyTorch's kernels and formula, and with the folder's, whose trace is 5 times the sum of four ones.
STOCK, CHANGED = [2.0, -0.577, 0.5], [20.0, 3.0, 7.0]


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beside")


@pytest.fixture(scope="module")
def only(where: Path) -> Iterator[Session]:
    with Session(where) as session:
        yield session
        assert session.ended() == 0


@pytest.fixture
def session(only: Session) -> Iterator[Session]:
    """The session, with nothing loaded."""
    yield only
    only.run("for name in graft.loaded(): graft.unload(name)")


@pytest.fixture
def small(where: Path) -> Folder:
    """A folder with one operator. Tests edit it in the same ways: each state is compiled once for all of them."""
    return Folder(where / "small", SMALL)


@pytest.fixture
def replaced(where: Path) -> Folder:
    """A folder that replaces kernels and a formula of PyTorch."""
    return Folder(where / "one", TRACE)


def test_replaced_kernels_and_formulas_load_and_unload(session: Session, replaced: Folder) -> None:
    session.load(replaced.path)
    session.run(TOOLS)
    assert session.value("results()") == CHANGED
    replaced.edit("Trace.cpp", "mul(5)", "mul(6)")
    session.load(replaced.path)
    assert session.value("results()") == [24.0, *CHANGED[1:]]
    replaced.edit("cpu/DigammaKernel.cpp", "a * 3", "a * 6")
    replaced.edit("derivatives.yaml", "7 *", "6 *")
    session.load(replaced.path)
    assert session.value("results()") == [24.0, 6.0, 6.0]
    session.run("with _graft.stock(): inside = results()")
    assert session.value("inside") == STOCK
    assert session.value("results()") == [24.0, 6.0, 6.0]
    session.run("graft.unload('one')")
    assert session.value("results()") == STOCK
    session.load(replaced.path)
    assert session.value("results()") == [24.0, 6.0, 6.0]


def test_kernels_that_call_pytorchs_call_no_earlier_load(session: Session, replaced: Folder) -> None:
    session.load(replaced.path)
    session.run(TOOLS)
    replaced.edit("Trace.cpp", "self.sum().mul(5)", "stock::trace_cpu(self).mul(8)")
    replaced.edit("cpu/DigammaKernel.cpp", "cpu_kernel(iter, [](float a) -> float { return a * 3; })", CALL)
    replaced.edit("derivatives.yaml", "self: 7 * grad", "self: 8 * stock")
    session.load(replaced.path)
    assert session.value("results()") == [16.0, STOCK[1], 4.0]
    replaced.edit("Trace.cpp", "mul(8)", "mul(9)")
    replaced.edit("cpu/DigammaKernel.cpp", CALL, f"{CALL}; (void)0")
    session.load(replaced.path)
    assert session.value("results()") == [18.0, STOCK[1], 4.0]


def test_part_that_is_no_longer_replaced_is_pytorchs_own(session: Session, replaced: Folder) -> None:
    session.load(replaced.path)
    session.run(TOOLS)
    replaced.remove("cpu/DigammaKernel.cpp")
    session.load(replaced.path)
    assert session.value("results()") == [20.0, STOCK[1], 7.0]
    replaced.remove("derivatives.yaml")
    session.load(replaced.path)
    assert session.value("results()") == [20.0, STOCK[1], STOCK[2]]


@pytest.mark.parametrize("order", [(0, 1, 2), pytest.param((2, 0, 1), marks=pytest.mark.slow)])
def test_stock_in_any_order(session: Session, where: Path, order: tuple[int, ...]) -> None:
    """Each of three folders replaces one thing. `stock` is entered between loads, too."""
    parts = [["native_functions.yaml", "Trace.cpp"], ["cpu/DigammaKernel.cpp"], ["derivatives.yaml"]]
    folders = [
        Folder(where / f"part_{number}", {name: TRACE[name] for name in part}) for number, part in enumerate(parts)
    ]
    for folder in folders:
        session.load(folder.path)
    session.run(TOOLS)
    assert session.value("results()") == CHANGED
    now = list(CHANGED)
    for number in order:
        session.run(
            f"with _graft.stock():\n    inside = results()\n    graft.unload('part_{number}')\n    after = results()"
        )
        now[number] = STOCK[number]
        assert session.value("[inside, after]") == [STOCK, STOCK]
        assert session.value("results()") == now
    session.run(f"with _graft.stock():\n    graft.load({str(folders[order[0]].path)!r})\n    inside = results()")
    assert session.value("inside") == STOCK
    now[order[0]] = CHANGED[order[0]]
    assert session.value("results()") == now


def test_operator_of_another_load_is_refused(session: Session, small: Folder) -> None:
    session.load(small.path)
    small.edit("Twice.cpp", "2 *", "100 *")
    said = session.error(f"graft.load({str(small.path)!r}, name='second')")
    assert "aten::twice: the load small, of " in said and 'graft.unload("small")' in said
    assert session.value("[torch.twice(torch.tensor(5.)).item(), list(graft.loaded())]") == [10.0, ["small"]]
    session.load(small.path)
    assert session.value("torch.twice(torch.tensor(5.)).item()") == 500.0


def test_two_loads_beside_each_other(session: Session, small: Folder, replaced: Folder) -> None:
    session.load(small.path)
    session.load(replaced.path)
    both = "torch.twice(torch.tensor(5.)).item(), torch.trace(torch.ones(2, 2)).item()"
    assert session.value(both) == (10.0, 20.0)
    for name, factor in (("Twice.cpp", 100), ("derivatives.yaml", 3)):
        small.edit(name, "2 *", f"{factor} *")
        session.load(small.path)
        assert session.value(both) == (500.0, 20.0)
    session.run("graft.unload('small')")
    assert session.value("hasattr(torch, 'twice'), torch.trace(torch.ones(2, 2)).item()") == (False, 20.0)


def test_operator_of_another_package_is_refused_by_name(session: Session, small: Folder) -> None:
    session.run(
        "library = torch.library.Library('aten', 'FRAGMENT')\n"
        "library.define('twice(Tensor self) -> Tensor')\n"
        "library.impl('twice', lambda self: self + 1, 'CompositeExplicitAutograd')"
    )
    said = session.error(f"graft.load({str(small.path)!r})")
    assert "twice" in said and "another package" in said
    assert session.value("torch.ops.aten.twice(torch.tensor(5.)).item()") == 6.0
    assert session.value("list(graft.loaded())") == []
    session.run("library._destroy(); del library")
    session.load(small.path)
    assert session.value("torch.twice(torch.tensor(5.)).item()") == 10.0


def test_operator_of_pytorch_is_refused(session: Session, where: Path) -> None:
    texts = {"native_functions.yaml": CUBED_ENTRY, "Tanh.cpp": CUBED}
    folder = Folder(where / "tanhs", {name: text.replace("cubed", "tanh") for name, text in texts.items()})
    assert "tanh" in session.error(f"graft.load({str(folder.path)!r})")
    assert session.value("round(torch.tanh(torch.tensor(5.)).item(), 2)") == 1.0


@pytest.fixture(scope="module", params=["develop", pytest.param("thin wheel", marks=pytest.mark.slow)])
def beside(request: pytest.FixtureRequest, environment: Environment, where: Path) -> Iterator[Session]:
    """A session whose torch has an operator by another delivery."""
    delivered = Folder(where / "delivered", SMALL).path
    copy = environment.copied_to(where / f"environment-{request.param.replace(' ', '-')}")
    make("undevelop", copy)
    paths = [str(copy.packages), str(PACKAGES)]
    if request.param == "develop":
        make("develop", copy, "--native", delivered)
        paths.insert(
            0, copy.run("import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))").stdout.strip()
        )
    else:
        copy.pip("install", "--no-deps", thin_wheel(copy, delivered, where / "thin"))
    with Session(where, PYTHONPATH=os.pathsep.join(paths)) as session:
        assert session.value("torch.twice(torch.tensor(5.)).item()") == 10.0
        yield session
        assert session.ended() == 0


def test_new_kernels_over_those_of_another_delivery(beside: Session, small: Folder) -> None:
    small.edit("Twice.cpp", "2 *", "100 *")
    beside.run("function, leaf = torch.twice, torch.tensor(5., requires_grad=True)")
    beside.run("def slope(): return torch.autograd.grad(leaf.twice(), leaf)[0].item()")
    both = "torch.twice(leaf).item(), leaf.twice().item(), slope()"
    assert beside.value(both) == (10.0, 10.0, 2.0)
    beside.load(small.path)
    assert beside.value(both) == (500.0, 500.0, 2.0)
    small.edit("derivatives.yaml", "2 *", "3 *")
    beside.load(small.path)
    assert beside.value(both) == (500.0, 500.0, 3.0)
    beside.run("graft.unload('small')")
    assert beside.value(both) == (10.0, 10.0, 2.0)
    assert beside.value("torch.twice is function")
    assert all("twice has a kernel for CPU and none for Meta" in line for line in beside.said().splitlines())


def test_other_schema_than_that_of_another_delivery_is_refused(beside: Session, small: Folder) -> None:
    for name, kind in (("native_functions.yaml", "int"), ("derivatives.yaml", "int"), ("Twice.cpp", "int64_t")):
        small.edit(name, "self)", f"self, {kind} n)")
    said = beside.error(f"graft.load({str(small.path)!r})")
    assert said.startswith("graft.core.errors.") and "twice" in said and len(said.splitlines()) <= 3
    assert beside.value("torch.twice(torch.tensor(5.)).item(), list(graft.loaded())") == (10.0, [])


def test_operator_beside_those_of_another_delivery(beside: Session) -> None:
    beside.run(f"{INLINE}\ntimes(3)")
    both = "torch.times(torch.tensor(5.)).item(), torch.twice(torch.tensor(5.)).item()"
    assert beside.value(both) == (15.0, 10.0)
    beside.run("graft.unload('times')")
    assert beside.value("hasattr(torch, 'times'), torch.twice(torch.tensor(5.)).item()") == (False, 10.0)
