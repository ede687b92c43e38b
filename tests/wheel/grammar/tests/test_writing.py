"""Operators that write positional arguments and have no functional variant, beside operators of torch.library with the
same schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import aten, real
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

beside = torch.ops.gr_beside


def _put(x: Tensor, out: Tensor) -> None:
    out.copy_(2 * x)


def _put_row(cache: Tensor, x: Tensor, *, at: int) -> None:
    cache[at] = x


def _put_list(x: Tensor, outs: list[Tensor]) -> None:
    for out in outs:
        out.copy_(2 * x)


def _add_to(self: Tensor, x: Tensor) -> None:
    self.add_(x)


def _sides(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    low.copy_(x.clamp(max=0))
    high.copy_(x.clamp(min=0))
    return x.abs()


# The operators of torch.library: their schemas, without the name of the operator, and kernels.
BESIDE: dict[str, tuple[str, Callable[..., Any]]] = {
    "gr_put": ("(Tensor x, Tensor(a!) out) -> ()", _put),
    "gr_put.row": ("(Tensor(a!) cache, Tensor x, *, int at) -> ()", _put_row),
    "gr_put.list": ("(Tensor x, Tensor(a!)[] outs) -> ()", _put_list),
    "gr_add_to": ("(Tensor(a!) self, Tensor x) -> ()", _add_to),
    "gr_sides": ("(Tensor x, Tensor(a!) low, Tensor(b!) high) -> Tensor", _sides),
}


@pytest.fixture(scope="module", autouse=True)
def _beside() -> Iterator[None]:
    library = torch.library.Library("gr_beside", "DEF")
    for name, (schema, kernel) in BESIDE.items():
        library.define(name + schema)
        library.impl(name, kernel, "CPU")
    library.impl("gr_sides", lambda x, low, high: x.abs(), "Meta")
    yield
    library._destroy()


def test_calls() -> None:
    x, out = torch.arange(3.0), torch.empty(3)
    assert torch.gr_put(x, out) is None
    assert out.tolist() == [0, 2, 4]
    torch.gr_put(x, out, 5)
    assert out.tolist() == [0, 5, 10]
    cache = torch.zeros(2, 3)
    torch.gr_put(cache, x, at=1)
    assert cache.tolist() == [[0, 0, 0], [0, 1, 2]]
    torch.gr_put(x, [out, cache[0]])
    assert out.tolist() == cache[0].tolist() == [0, 2, 4]
    assert out.gr_add_to(x) is None
    torch.gr_add_to(out, x)
    assert out.tolist() == [0, 4, 8]
    low, high = torch.empty(3), torch.empty(3)
    assert torch.gr_sides(x - 1, low, high).tolist() == [1, 0, 1]
    assert (low.tolist(), high.tolist()) == ([-1, 0, 0], [0, 0, 1])
    assert [each.tolist() for each in aten.gr_sides.two(out, x)] == [[0, -1, -2], [0, 1, 2]]


def test_versions_of_what_is_written_grow() -> None:
    x, y, z = torch.ones(2), torch.ones(2), torch.ones(2)
    for write in (
        lambda: torch.gr_put(x, y),
        lambda: torch.gr_put(x, y, 2),
        lambda: torch.gr_put(y, x[0], at=1),
        lambda: y.gr_add_to(x),
        lambda: torch.gr_put(x, [y, z]),
        lambda: torch.gr_sides(x, y, z),
        lambda: aten.gr_sides.two(y, x),
    ):
        before = x._version, y._version
        write()
        assert (x._version, y._version) > before
        assert x._version == before[0]
    assert z._version == 2


def test_a_saved_tensor_that_is_written_is_noticed() -> None:
    x, z = real(3), torch.ones(3, dtype=torch.double)
    y = x.exp()
    with torch.no_grad():
        torch.gr_put(z, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("write", [lambda x, y: torch.gr_put(x, y), lambda x, y: torch.gr_put(x, [y])])
def test_what_may_not_be_written_is_refused_as_in_place(write: Callable[[Tensor, Tensor], None]) -> None:
    x = torch.ones(3, dtype=torch.double)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        write(x, real(3))
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        write(x, real(2, 3)[0])
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        write(x, (real(2, 3) * 1).unbind()[0])
    leaf = real(3)
    with torch.no_grad():
        write(x, leaf)
    assert leaf.tolist() == [2, 2, 2]


def test_backward_through_what_is_written_raises_with_the_name() -> None:
    x, out, base = real(3), torch.zeros(3, dtype=torch.double), torch.zeros(2, 3, dtype=torch.double)
    torch.gr_put(x, out)
    assert out.requires_grad
    with pytest.raises(RuntimeError, match="derivative for gr_put is not implemented"):
        out.sum().backward()
    torch.gr_put(x, base[1])
    with pytest.raises(RuntimeError, match="derivative for gr_put is not implemented"):
        base.sum().backward()
    low, high = torch.zeros(3, dtype=torch.double), torch.zeros(3, dtype=torch.double)
    for each in (torch.gr_sides(x, low, high), low, high):
        with pytest.raises(RuntimeError, match="derivative for gr_sides is not implemented"):
            each.sum().backward(retain_graph=True)
    count = torch.zeros(1, dtype=torch.long)
    negative, _ = aten.gr_sides.two(count, x)
    assert (count.requires_grad, negative.requires_grad) == (False, True)


def test_forward_mode_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="forward AD with gr_put that does not support it"):
        torch.func.jvp(lambda x: torch.gr_put(x, torch.zeros(3)), (torch.ones(3),), (torch.ones(3),))


# Programs that write, each with the module that has the operators: `aten` or `gr_beside`.
PROGRAMS: dict[str, Callable[[Any, Tensor], Any]] = {
    "a new tensor": lambda ops, x: (y := torch.empty_like(x), ops.gr_put(x, y), y + 1)[2],
    "an input": lambda ops, x: (ops.gr_put(x[0], x[1]), x.sum())[1],
    "views of one base": lambda ops, x: (
        y := x.clone(),
        a := y[0],
        b := y[1],
        ops.gr_put(x[2], a),
        ops.gr_put(a, b),
        y * a + b,
    )[5],
    "a list": lambda ops, x: (y := x.clone(), ops.gr_put.list(x[0], [y[1], y[2]]), y)[2],
    "a row": lambda ops, x: (y := torch.zeros_like(x), ops.gr_put.row(y, x[0], at=1), y)[2],
    "self": lambda ops, x: (y := x * 2, ops.gr_add_to(y, x), y)[2],
    "beside a result": lambda ops, x: (
        low := torch.empty_like(x),
        high := torch.empty_like(x),
        ops.gr_sides(x, low, high) + low - high,
    )[2],
}
IS_ODD = pytest.mark.filterwarnings("ignore:Using `self`")  # the name of an argument, also of torch.library


@IS_ODD
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    program = PROGRAMS[name]
    compiled = torch.compile(lambda x: program(aten, x), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for n in (4, 5):
        x = torch.randn(3, n)
        copies = [x.clone() for _ in range(3)]
        found, wanted, theirs = compiled(copies[0]), program(aten, copies[1]), program(beside, copies[2])
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(wanted, theirs)
        torch.testing.assert_close(copies[0], copies[1])


@IS_ODD
@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_are_those_of_torch_library(name: str) -> None:
    def graph(ops: Any) -> str:
        found: list[torch.fx.GraphModule] = []

        def record(module: torch.fx.GraphModule, inputs: Any) -> Any:
            found.append(module)
            return module

        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=record)
        torch.compile(lambda x: PROGRAMS[name](ops, x), backend=backend, fullgraph=True)(torch.ones(3, 4))
        return found[0].code.replace("gr_beside", "aten")

    ours = graph(aten)
    assert "auto_functionalized_v2(torch.ops.aten.gr_" in ours.replace(" ", "").replace("_mutable_op=", "")
    assert ours == graph(beside)


def test_make_fx_records_the_call() -> None:
    graph = make_fx(lambda x: PROGRAMS["a new tensor"](aten, x), tracing_mode="symbolic")(torch.ones(2, 3))
    assert "aten.gr_put.default" in graph.code
    torch.testing.assert_close(graph(torch.ones(4, 5)), torch.full((4, 5), 3.0))


def test_tensors_without_data() -> None:
    x = torch.ones(3, device="meta")
    assert torch.gr_put(x, x.clone()) is None
    assert torch.gr_put(x, [x.clone()]) is None


def test_trace_records_the_call() -> None:
    def program(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        torch.gr_put(x, y)
        return y

    traced = torch.jit.trace(program, (torch.ones(3),))
    assert "aten::gr_put" in str(traced.graph)
    assert traced(torch.full((3,), 5.0)).tolist() == [10, 10, 10]


def test_functionalize_says_that_it_cannot() -> None:
    with pytest.raises(RuntimeError, match="gr_put"):
        torch.func.functionalize(lambda x: PROGRAMS["a new tensor"](aten, x))(torch.ones(3))


def test_vmap_needs_a_rule() -> None:
    with pytest.raises(NotImplementedError, match=r"aten::gr_put: .* write a batching rule \(gen_vmap_plumbing_no"):
        torch.vmap(lambda x: torch.gr_put(x, torch.zeros(3)))(torch.ones(2, 3))
    with pytest.raises(NotImplementedError, match=r"aten::gr_sides: .* write a batching rule in"):
        torch.vmap(lambda x: torch.gr_sides(x, torch.zeros(3), torch.zeros(3)))(torch.ones(2, 3))


@pytest.mark.parametrize("call", [lambda x: (x, torch.zeros(3)), lambda x: (x.requires_grad_(), torch.zeros(3))])
def test_opcheck(call: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    torch.library.opcheck(aten.gr_put.default, call(torch.ones(3)))


@IS_ODD
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"cpp_wrapper": True}], ids=["", "cpp_wrapper"])
def test_inductor(name: str, options: dict[str, bool]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: PROGRAMS[name](aten, x), fullgraph=True, options=options)
    x = torch.randn(3, 4)
    copies = [x.clone() for _ in range(2)]
    torch.testing.assert_close(compiled(copies[0]), PROGRAMS[name](aten, copies[1]))
    torch.testing.assert_close(copies[0], copies[1])


def test_inductor_copies_nothing_where_eager_does_not() -> None:
    torch._dynamo.reset()
    cache, row = torch.zeros(64, 1 << 18), torch.ones(1 << 18)  # 64 MB

    @torch.compile(fullgraph=True)
    def step(cache: Tensor, row: Tensor) -> None:
        aten.gr_put.row(cache, row, at=3)
        aten.gr_put(row, cache[5])

    step(cache, row)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        for _ in range(3):
            step(cache, row)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert cache.sum(1).nonzero().flatten().tolist() == [3, 5]
    assert largest < cache.nbytes // 8  # a row, which the kernel of gr_put makes


class Writes(torch.nn.Module):
    """Writes a new tensor and views of one base."""

    def forward(self, x: Tensor) -> Tensor:
        return PROGRAMS["a new tensor"](aten, x) + PROGRAMS["views of one base"](aten, x)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_export() -> None:
    x = torch.randn(3, 4)
    shapes = ({1: torch.export.Dim("n", min=2, max=99)},)
    program = torch.export.export(Writes(), (x,), dynamic_shapes=shapes)
    lowered = program.run_decompositions()
    assert "auto_functionalized" in lowered.graph_module.code
    for each in (x, torch.randn(3, 7)):
        torch.testing.assert_close(program.module()(each), Writes()(each))
        torch.testing.assert_close(lowered.module()(each), Writes()(each))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_ahead_of_time(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    program = torch.export.export(Writes(), (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "writes.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), Writes()(x))


def test_script_keeps_the_call() -> None:
    @torch.jit.script
    def program(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        torch.gr_put(x, y)
        return y

    assert "aten::gr_put" in str(program.graph)
    assert program(torch.ones(2)).tolist() == program(torch.ones(2)).tolist() == [2, 2]
