"""Operators that PyTorch, another delivery of Graft, another load or another package has already."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from graft.core.layout import PACKAGES
from helpers import write
from sessions import Folder, Session
from users import Environment, make, write_operator

TRACE = {
    "native_functions.yaml": "- func: trace(Tensor self) -> Tensor\n  replace: True\n  dispatch:\n    CPU: own_trace\n",
    "derivatives.yaml": "- name: log1p(Tensor self) -> Tensor\n  replace: True\n  self: 7 * grad\n"
    "  result: auto_linear\n",
    "Trace.cpp": """#include <ATen/core/Tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/trace_native.h>

namespace at::native {

Tensor own_trace(const Tensor& self) {
  return self.sum().mul(5);
}

} // namespace at::native
""",
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

STOCK = [2.0, -0.577, 0.5]


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


def replaced(where: Path, name: str, factor: int) -> Folder:
    """Return a folder that replaces kernels and a formula of PyTorch."""
    folder = Folder(where / name, TRACE)
    folder.edit("Trace.cpp", "mul(5)", f"mul({factor})")
    folder.edit("derivatives.yaml", "7 *", f"{factor} *")
    folder.edit("cpu/DigammaKernel.cpp", "a * 3", f"a * {factor}")
    return folder


def test_replaced_kernels_and_formulas_load_and_unload(session: Session, where: Path) -> None:
    folder = replaced(where, "one", 5)
    session.load(folder.path)
    session.run(TOOLS)
    assert session.value("results()") == [20.0, 5.0, 5.0]
    folder.edit("Trace.cpp", "mul(5)", "mul(6)")
    session.load(folder.path)
    assert session.value("results()") == [24.0, 5.0, 5.0]
    folder.edit("cpu/DigammaKernel.cpp", "a * 5", "a * 6")
    folder.edit("derivatives.yaml", "5 *", "6 *")
    session.load(folder.path)
    assert session.value("results()") == [24.0, 6.0, 6.0]
    session.run("with _graft.stock(): inside = results()")
    assert session.value("inside") == STOCK
    assert session.value("results()") == [24.0, 6.0, 6.0]
    session.run("graft.unload('one')")
    assert session.value("results()") == STOCK
    session.load(folder.path)
    assert session.value("results()") == [24.0, 6.0, 6.0]


def test_kernels_that_call_pytorchs_call_no_earlier_load(session: Session, where: Path) -> None:
    folder = replaced(where, "one", 5)
    session.load(folder.path)
    session.run(TOOLS)
    folder.edit("Trace.cpp", "self.sum().mul(5)", "stock::trace_cpu(self).mul(8)")
    folder.edit("cpu/DigammaKernel.cpp", "cpu_kernel(iter, [](float a) -> float { return a * 5; })", CALL)
    folder.edit("derivatives.yaml", "self: 5 * grad", "self: 8 * stock")
    session.load(folder.path)
    assert session.value("results()") == [16.0, STOCK[1], 4.0]
    folder.edit("Trace.cpp", "mul(8)", "mul(9)")
    folder.edit("cpu/DigammaKernel.cpp", CALL, f"{CALL}; (void)0")
    session.load(folder.path)
    assert session.value("results()") == [18.0, STOCK[1], 4.0]


def test_part_that_is_no_longer_replaced_is_pytorchs_own(session: Session, where: Path) -> None:
    folder = replaced(where, "one", 5)
    session.load(folder.path)
    session.run(TOOLS)
    folder.remove("cpu/DigammaKernel.cpp")
    session.load(folder.path)
    assert session.value("results()") == [20.0, STOCK[1], 5.0]
    folder.remove("derivatives.yaml")
    session.load(folder.path)
    assert session.value("results()") == [20.0, STOCK[1], STOCK[2]]


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_stock_in_any_order(session: Session, where: Path, order: tuple[int, ...]) -> None:
    """Each of three folders replaces one thing. `stock` is entered between loads, too."""
    parts = [["native_functions.yaml", "Trace.cpp"], ["cpu/DigammaKernel.cpp"], ["derivatives.yaml"]]
    folders = [
        Folder(where / f"part_{number}", {name: TRACE[name] for name in part}) for number, part in enumerate(parts)
    ]
    changed = [20.0, 3.0, 7.0]  # trace is the sum of four ones, times 5
    for folder in folders:
        session.load(folder.path)
    session.run(TOOLS)
    assert session.value("results()") == changed
    now = list(changed)
    for number in order:
        session.run(
            f"with _graft.stock():\n    inside = results()\n    graft.unload('part_{number}')\n    after = results()"
        )
        now[number] = STOCK[number]
        assert session.value("[inside, after]") == [STOCK, STOCK]
        assert session.value("results()") == now
    session.run(f"with _graft.stock():\n    graft.load({str(folders[order[0]].path)!r})\n    inside = results()")
    assert session.value("inside") == STOCK
    now[order[0]] = changed[order[0]]
    assert session.value("results()") == now


def test_operator_of_another_load_is_refused(session: Session, where: Path) -> None:
    first, second = (write_operator(where / name, "cut_own") for name in ("first", "second"))
    write(second, {"cut_own.cpp": (second / "cut_own.cpp").read_text().replace("clamp_max", "clamp_min")})
    session.load(first)
    said = session.error(f"graft.load({str(second)!r})")
    assert "cut_own" in said and 'graft.unload("first")' in said
    assert session.value("[torch.cut_own(torch.tensor(5.)).item(), list(graft.loaded())]") == [1.0, ["first"]]
    session.load(second, name="first")
    assert session.value("torch.cut_own(torch.tensor(5.)).item()") == 5.0


def test_two_loads_beside_each_other(session: Session, where: Path) -> None:
    first, second = (write_operator(where / f"{name}_ops", name) for name in ("cut_a", "cut_b"))
    session.load(first)
    session.load(second)
    both = "torch.cut_a(torch.tensor(5.)).item(), torch.cut_b(torch.tensor(5.)).item()"
    assert session.value(both) == (1.0, 1.0)
    write(first, {"cut_a.cpp": (first / "cut_a.cpp").read_text().replace("clamp_max", "clamp_min")})
    session.load(first)
    assert session.value(both) == (5.0, 1.0)
    write(first, {"derivatives.yaml": (first / "derivatives.yaml").read_text().replace("self: grad", "self: 3 * grad")})
    session.load(first)
    assert session.value(both) == (5.0, 1.0)
    session.run("graft.unload('cut_a_ops')")
    assert session.value("torch.cut_b(torch.tensor(5.)).item(), hasattr(torch, 'cut_a')") == (1.0, False)


def test_operator_of_another_package_is_refused_by_name(session: Session, where: Path) -> None:
    folder = write_operator(where / "others", "cut_others")
    session.run(
        "library = torch.library.Library('aten', 'FRAGMENT')\n"
        "library.define('cut_others(Tensor self, Scalar limit=1) -> Tensor')\n"
        "library.impl('cut_others', lambda self, limit=1: self + 1, 'CompositeExplicitAutograd')"
    )
    said = session.error(f"graft.load({str(folder)!r})")
    assert "cut_others" in said and "another package" in said
    assert session.value("torch.ops.aten.cut_others(torch.tensor(5.)).item()") == 6.0
    assert session.value("list(graft.loaded())") == []
    session.run("library._destroy(); del library")
    session.load(folder)
    assert session.value("torch.cut_others(torch.tensor(5.)).item()") == 1.0


def test_operator_of_pytorch_is_refused(session: Session, where: Path) -> None:
    folder = write_operator(where / "tanhs", "tanh")
    assert "tanh" in session.error(f"graft.load({str(folder)!r})")
    assert session.value("round(torch.tanh(torch.tensor(5.)).item(), 2)") == 1.0


@pytest.fixture(scope="module")
def delivered(stock_copy: Environment, where: Path) -> Path:
    """The folder of an operator that the environments below have."""
    return write_operator(where / "delivered", "cut_delivered")


@pytest.fixture(scope="module", params=["develop", "thin wheel"])
def beside(request: pytest.FixtureRequest, environment: Environment, delivered: Path, where: Path) -> Iterator[Session]:
    """A session whose torch has an operator by another delivery."""
    copy = environment.copied_to(where / f"environment-{request.param.replace(' ', '-')}")
    make("undevelop", copy)
    paths = [str(copy.packages), str(PACKAGES)]
    if request.param == "develop":
        make("develop", copy, "--native", delivered)
        paths.insert(
            0, copy.run("import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))").stdout.strip()
        )
    else:
        make("thin-wheel", copy, "--pin", "installed", "--native", delivered, "--out", where / "thin")
        copy.pip("install", "--no-deps", *(where / "thin").glob("*.whl"))
    with Session(where, PYTHONPATH=os.pathsep.join(paths)) as session:
        assert session.value("torch.cut_delivered(torch.tensor(5.)).item()") == 1.0
        yield session
        assert session.ended() == 0


def test_new_kernels_over_those_of_another_delivery(beside: Session, where: Path, delivered: Path) -> None:
    folder = write_operator(where / "over", "cut_delivered")
    write(
        folder,
        {"cut_delivered.cpp": (folder / "cut_delivered.cpp").read_text().replace("clamp_max(limit)", "mul(100)")},
    )
    beside.run("function, leaf = torch.cut_delivered, torch.tensor(5., requires_grad=True)")
    beside.run("def slope(): return torch.autograd.grad(leaf.cut_delivered(9), leaf)[0].item()")
    both = "torch.cut_delivered(leaf).item(), leaf.cut_delivered().item(), slope()"
    assert beside.value(both) == (1.0, 1.0, 1.0)
    beside.load(folder)
    assert beside.value(both) == (500.0, 500.0, 1.0)
    write(
        folder, {"derivatives.yaml": (folder / "derivatives.yaml").read_text().replace("self: grad", "self: 3 * grad")}
    )
    beside.load(folder)
    assert beside.value(both) == (500.0, 500.0, 3.0)
    beside.run("graft.unload('over')")
    assert beside.value(both) == (1.0, 1.0, 1.0)
    assert beside.value("torch.cut_delivered is function")
    assert beside.said() == ""


def test_other_schema_than_that_of_another_delivery_is_refused(beside: Session, where: Path) -> None:
    folder = write_operator(where / "other_schema", "cut_delivered")
    for name in ("native_functions.yaml", "derivatives.yaml"):
        write(folder, {name: (folder / name).read_text().replace("limit=1)", "limit=2)")})
    said = beside.error(f"graft.load({str(folder)!r})")
    assert said.startswith("graft.core.errors.") and "cut_delivered" in said and len(said.splitlines()) <= 3
    assert beside.value("torch.cut_delivered(torch.tensor(5.)).item(), list(graft.loaded())") == (1.0, [])


def test_operator_beside_those_of_another_delivery(beside: Session, where: Path) -> None:
    beside.load(write_operator(where / "more", "cut_more"))
    assert beside.value("torch.cut_more(torch.tensor(5.)).item(), torch.cut_delivered(torch.tensor(5.)).item()") == (
        1.0,
        1.0,
    )
    beside.run("graft.unload('more')")
    assert beside.value("hasattr(torch, 'cut_more'), torch.cut_delivered(torch.tensor(5.)).item()") == (False, 1.0)
