"""Operators that write positional arguments and have no functional variant, compared with operators of torch.library
that have the same schemas.
"""

import operator
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
BOTH = pytest.mark.parametrize("ops", [aten, beside], ids=["ours", "torch.library"])


def _put(x: Tensor, out: Tensor) -> None:
    out.copy_(2 * x)


def _put_row(cache: Tensor, x: Tensor, *, at: int) -> None:
    cache[at] = x


def _put_scaled(x: Tensor, out: Tensor, by: int) -> None:
    out.copy_(by * x)


def _put_list(x: Tensor, outs: list[Tensor]) -> None:
    for out in outs:
        out.copy_(2 * x)


def _add_to(self: Tensor, x: Tensor) -> None:
    self.add_(x)


def _add_to_each(info: Any, dims: tuple[int | None, ...], self: Tensor, x: Tensor) -> tuple[None, None]:
    self.movedim(dims[0] or 0, 0).add_(x if dims[1] is None else x.movedim(dims[1], 0))
    return None, None


def _sides(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    low.copy_(x.clamp(max=0))
    high.copy_(x.clamp(min=0))
    return x.abs()


def _rotate(positions: Tensor, query: Tensor, key: Tensor | None, head_size: int) -> None:
    query.add_(positions)
    if key is not None:
        key.sub_(positions, alpha=head_size)


def _keep(x: Tensor, kept: Tensor | None = None, by: int = 2) -> Tensor:
    if kept is not None:
        kept.copy_(by * x)
    return -x


# The operators of torch.library: their schemas, without the name of the operator, and kernels.
BESIDE: dict[str, tuple[str, Callable[..., Any]]] = {
    "gr_put": ("(Tensor x, Tensor(a!) out) -> ()", _put),
    "gr_put.scaled": ("(Tensor x, Tensor(a!) out, SymInt by) -> ()", _put_scaled),
    "gr_put.row": ("(Tensor(a!) cache, Tensor x, *, int at) -> ()", _put_row),
    "gr_put.list": ("(Tensor x, Tensor(a!)[] outs) -> ()", _put_list),
    "gr_add_to": ("(Tensor(a!) self, Tensor x) -> ()", _add_to),
    "gr_sides": ("(Tensor x, Tensor(a!) low, Tensor(b!) high) -> Tensor", _sides),
    "gr_rotate": ("(Tensor positions, Tensor(a!) query, Tensor(b!)? key, int head_size) -> ()", _rotate),
    "gr_keep": ("(Tensor x, Tensor(a!)? kept=None, int by=2) -> Tensor", _keep),
}


@pytest.fixture(scope="module", autouse=True)
def _beside() -> Iterator[None]:
    library = torch.library.Library("gr_beside", "DEF")
    for name, (schema, kernel) in BESIDE.items():
        library.define(name + schema)
        library.impl(name, kernel, "CPU")
    library.impl("gr_sides", lambda x, low, high: x.abs(), "Meta")
    library.impl("gr_keep", lambda x, kept=None, by=2: -x, "Meta")
    torch.library.register_vmap("gr_beside::gr_add_to", _add_to_each, lib=library)
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


def test_calls_with_none() -> None:
    x, query, key = torch.arange(3.0), torch.zeros(3), torch.zeros(3)
    assert torch.gr_rotate(x, query, key, 2) is None
    assert (query.tolist(), key.tolist()) == ([0, 1, 2], [0, -2, -4])
    assert torch.gr_rotate(x, query, None, 2) is None
    assert (query.tolist(), key.tolist()) == ([0, 2, 4], [0, -2, -4])
    assert torch.gr_keep(x).tolist() == torch.gr_keep(x, key, by=3).tolist() == [0, -1, -2]
    assert key.tolist() == [0, 3, 6]
    torch.gr_fill_some(None, key, 5)
    torch.gr_fill_some(None, None, 7)
    assert key.tolist() == [5, 5, 5]
    torch.gr_keep_composed(x, None)
    torch.gr_keep_composed(x, key)
    assert key.tolist() == [0, 2, 4]


# Views whose data is not what they show: conjugate, negative, and both.
LAZY: dict[str, Callable[[Tensor], Tensor]] = {
    "conj": lambda z: z.conj(),
    "mH": lambda z: z.mH,
    "imag of conj": lambda z: z.conj().imag,
    "neg of conj": lambda z: torch._neg_view(z.conj()),
}
WRITERS: dict[str, tuple[Callable[..., Any], int]] = {
    "one": (lambda x, out: aten.gr_put(x, out), 1),
    "in place": (lambda x, out: aten.gr_add_to(out, x), 1),
    "keyword": (lambda x, out: aten.gr_put.row(out, x[0], at=1), 1),
    "several": (lambda x, low, high: aten.gr_put.list(x, [low, high]), 2),
    "optional": (lambda x, query, key: aten.gr_rotate(x, query, key, 2), 2),
    "None": (lambda x, query: aten.gr_rotate(x, query, None, 2), 1),
    "composite": (lambda x, first, second: aten.gr_fill_some(first, second, 3), 2),
    "with a result": (lambda x, kept: aten.gr_keep(x, kept), 1),
    "the same twice": (lambda x, out: aten.gr_rotate(out, out, out, 2), 1),
}


@pytest.mark.parametrize("view", LAZY)
@pytest.mark.parametrize("name", WRITERS)
def test_writes_conjugate_and_negative_views(name: str, view: str) -> None:
    """As a copy is written whose data is what it shows."""
    write, count = WRITERS[name]

    def written(resolve: bool) -> list[Tensor]:
        bases = [(n + 1) * torch.arange(9.0).view(3, 3) * (1 + 2j) for n in range(count)]
        tensors = [LAZY[view](base) for base in bases]
        x = LAZY[view](torch.arange(9.0).view(3, 3) * (2 - 1j))
        if resolve:
            x, *tensors = (each.resolve_conj().resolve_neg() for each in (x, *tensors))
        result = write(x, *tensors)
        assert resolve or all(each.is_conj() or each.is_neg() for each in tensors)
        return [*tensors, *([] if result is None else [result])]

    torch.testing.assert_close([each.resolve_conj().resolve_neg() for each in written(False)], written(True))


def test_tensor_with_data_beside_those_without_is_refused() -> None:
    out = torch.ones(3)
    with pytest.raises(NotImplementedError, match=r"gr_put: out is on cpu"):
        aten.gr_put(torch.ones(3, device="meta"), out)
    with pytest.raises(NotImplementedError, match=r"gr_put.list: outs is on cpu"):
        aten.gr_put.list(torch.ones(3, device="meta"), [torch.ones(3, device="meta"), out])
    assert out.tolist() == [1, 1, 1]


def test_versions_of_written_tensors_grow() -> None:
    x, y, z = torch.ones(2), torch.ones(2), torch.ones(2)
    for write in (
        lambda: torch.gr_put(x, y),
        lambda: torch.gr_put(x, y, 2),
        lambda: torch.gr_put(y, x[0], at=1),
        lambda: y.gr_add_to(x),
        lambda: torch.gr_put(x, [y, z]),
        lambda: torch.gr_sides(x, y, z),
        lambda: aten.gr_sides.two(y, x),
        lambda: torch.gr_rotate(x, y, None, 2),
        lambda: torch.gr_keep(x, y),
        lambda: torch.gr_fill_some(None, y, 2),
        lambda: torch.gr_keep_composed(x, y),
    ):
        before = x._version, y._version
        write()
        assert (x._version, y._version) > before
        assert x._version == before[0]
    assert z._version == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: torch.gr_put(x, y),
        lambda x, y: torch.gr_put(x, [y]),
        lambda x, y: torch.gr_keep(x, y),
        lambda x, y: torch.gr_rotate(x, x.clone(), y, -2),
    ],
)
def test_writing_a_leaf_is_refused_as_in_place(write: Callable[[Tensor, Tensor], None]) -> None:
    x = torch.ones(3, dtype=torch.double)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        write(x, real(3))
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        write(x, real(2, 3)[0])
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        write(x, (real(2, 3) * 1).unbind()[0])
    leaf = torch.zeros(3, dtype=torch.double, requires_grad=True)
    with torch.no_grad():
        write(x, leaf)
    assert leaf.tolist() == [2, 2, 2]


def test_backward_through_a_written_tensor_raises_with_the_name() -> None:
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
    query, key = torch.zeros(3, dtype=torch.double), torch.zeros(3, dtype=torch.double)
    torch.gr_rotate(x, query, None, 2)
    torch.gr_fill_some(None, key, 2)
    assert (query.requires_grad, key.requires_grad) == (True, False)
    torch.gr_rotate(x, query, key, 2)
    for each in (query, key):
        with pytest.raises(RuntimeError, match="derivative for gr_rotate is not implemented"):
            each.sum().backward(retain_graph=True)
    count = torch.zeros(1, dtype=torch.long)
    negative, _ = aten.gr_sides.two(count, x)
    assert (count.requires_grad, negative.requires_grad) == (False, True)


def test_gradients_of_what_a_composite_kernel_writes() -> None:
    x, kept = real(3), torch.zeros(3, dtype=torch.double)
    torch.gr_keep_composed(x, kept)
    kept.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_forward_mode_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="forward AD with gr_rotate that does not support it"):
        torch.func.jvp(lambda x: torch.gr_rotate(x, torch.zeros(3), None, 2), (torch.ones(3),), (torch.ones(3),))
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
    "an optional": lambda ops, x: (
        query := x.clone(),
        key := torch.zeros_like(x),
        ops.gr_rotate(x[0], query, key[1], 2),
        ops.gr_rotate(query, key, None, 2),
        query * key,
    )[4],
    "an optional beside a result": lambda ops, x: (y := torch.empty_like(x), ops.gr_keep(x, y, by=3) + y)[1],
}
IS_ODD = pytest.mark.filterwarnings("ignore:Using `self`")  # the name of an argument, also of torch.library


@IS_ODD
@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_are_those_of_torch_library(name: str) -> None:
    def graph(ops: Any) -> str:
        found: list[torch.fx.GraphModule] = []

        def record(module: torch.fx.GraphModule, inputs: Any) -> Any:
            found.append(module)
            return module

        backend = aot_autograd(fw_compiler=record)
        torch.compile(lambda x: PROGRAMS[name](ops, x), backend=backend, fullgraph=True)(torch.ones(3, 4))
        return found[0].code.replace("gr_beside", "aten")

    ours = graph(aten)
    assert "auto_functionalized_v2(torch.ops.aten.gr_" in ours.replace(" ", "").replace("_mutable_op=", "")
    assert ours == graph(beside)


def test_make_fx_records_the_call() -> None:
    graph = make_fx(lambda x: PROGRAMS["a new tensor"](aten, x), tracing_mode="symbolic")(torch.ones(2, 3))
    assert ".gr_put.default" in graph.code
    torch.testing.assert_close(graph(torch.ones(4, 5)), torch.full((4, 5), 3.0))


# TorchScript does not keep the names of arguments: it takes gr_put.scaled for gr_put.row.
RECORDED = [name for name in PROGRAMS if name not in ("a list", "a row")]


@pytest.mark.parametrize("name", RECORDED)
def test_trace_records_the_call(name: str) -> None:
    traced = torch.jit.trace(lambda x: PROGRAMS[name](aten, x.clone()), (torch.ones(3, 4),))
    assert "::gr_" in str(traced.graph)
    x = torch.randn(3, 4)
    torch.testing.assert_close(traced(x), PROGRAMS[name](aten, x.clone()))


def test_trace_refuses_what_torchscript_drops() -> None:
    with pytest.raises(NotImplementedError, match=r"aten::gr_put\.list: it writes a list of tensors"):
        torch.jit.trace(lambda x: PROGRAMS["a list"](aten, x), (torch.ones(3, 4),))

    def composite(x: Tensor) -> Tensor:
        torch.gr_bump_all_(xs := [x.clone(), x + 1], 2)
        return xs[0] * xs[1]

    traced = torch.jit.trace(composite, (torch.ones(3),))
    x = torch.randn(3)
    torch.testing.assert_close(traced(x), composite(x))


def test_functionalize_says_that_it_cannot() -> None:
    with pytest.raises(RuntimeError, match="gr_put"):
        torch.func.functionalize(lambda x: PROGRAMS["a new tensor"](aten, x))(torch.ones(3))


def test_vmap_needs_a_rule() -> None:
    with pytest.raises(NotImplementedError, match=r"aten::gr_put: .* write a batching rule \(gen_vmap_plumbing_no"):
        torch.vmap(lambda x: torch.gr_put(x, torch.zeros(3)))(torch.ones(2, 3))
    with pytest.raises(NotImplementedError, match=r"aten::gr_sides: .* write a batching rule in"):
        torch.vmap(lambda x: torch.gr_sides(x, torch.zeros(3), torch.zeros(3)))(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="Batching rule not implemented for gr_beside::gr_put"):
        torch.vmap(lambda x: beside.gr_put(x, torch.zeros(3)))(torch.ones(2, 3))


@BOTH
def test_vmap_uses_the_rule_of_the_folder(ops: Any) -> None:
    x, y, row = torch.randn(2, 3), torch.randn(2, 3), torch.randn(3)
    for dims, other in ((0, 0), y), ((0, None), row), ((1, 0), y):
        written = x.mT.clone() if dims[0] else x.clone()
        torch.vmap(ops.gr_add_to, dims, out_dims=None)(written, other)
        torch.testing.assert_close(written, (x + other).mT if dims[0] else x + other)


X, OUT = torch.ones(3), torch.zeros(3)
# By overload, arguments, and the place of one that may require a gradient: opcheck computes derivatives of results,
# which those with results do not have.
CHECKED: dict[str, tuple[tuple[Any, ...], dict[str, int], int | None]] = {
    "gr_put.default": ((X, OUT), {}, 0),
    "gr_put.scaled": ((X, OUT, 3), {}, 0),
    "gr_put.row": ((torch.zeros(2, 3), X), {"at": 1}, 1),
    "gr_put.list": ((X, [OUT, OUT.clone()]), {}, 0),
    "gr_add_to.default": ((OUT, X), {}, 1),
    "gr_sides.default": ((X, OUT, OUT.clone()), {}, None),
    "gr_rotate.default": ((X, OUT, OUT.clone(), 2), {}, 0),
    "gr_keep.default": ((X, OUT), {}, None),
}


@pytest.mark.parametrize("name", CHECKED)
def test_opcheck(name: str) -> None:
    overload = operator.attrgetter(name)(aten)
    args, kwargs, place = CHECKED[name]
    torch.library.opcheck(overload, args, kwargs)
    if place is not None:
        torch.library.opcheck(overload, [x.clone().requires_grad_() if x is X else x for x in args], kwargs)


def test_opcheck_with_none() -> None:
    torch.library.opcheck(aten.gr_rotate.default, (X.clone().requires_grad_(), OUT, None, 2))
    torch.library.opcheck(aten.gr_keep.default, (X, None))


@IS_ODD
@pytest.mark.parametrize("options", [{}, {"cpp_wrapper": True}], ids=["", "cpp_wrapper"])
def test_inductor(options: dict[str, bool]) -> None:
    """All programs in one graph, with both kinds of operators; and None beside a result."""

    def everything(xs: list[Tensor], ys: list[Tensor]) -> tuple[list[Any], list[Any], Tensor]:
        ours = [program(aten, x) for program, x in zip(PROGRAMS.values(), xs, strict=True)]
        theirs = [program(beside, y) for program, y in zip(PROGRAMS.values(), ys, strict=True)]
        return ours, theirs, torch.gr_keep(xs[0]) + torch.gr_keep(xs[0] + 1, None) * 2

    x = torch.randn(3, 4)
    ours, theirs, expected = ([x.clone() for _ in PROGRAMS] for _ in range(3))
    found = torch.compile(everything, fullgraph=True, options=options)(ours, theirs)
    wanted = [program(beside, each) for program, each in zip(PROGRAMS.values(), expected, strict=True)]
    torch.testing.assert_close(found, (wanted, wanted, -3 * x - 2))
    torch.testing.assert_close((ours, theirs), (expected, expected))


@BOTH
def test_inductor_copies_nothing_where_eager_does_not(ops: Any) -> None:
    cache, row = torch.zeros(64, 1 << 18), torch.ones(1 << 18)  # 64 MB

    @torch.compile(fullgraph=True)
    def steps(cache: Tensor, row: Tensor) -> None:
        for at in range(4):
            ops.gr_put.row(cache, row, at=at)
            ops.gr_put(row, cache[at + 8])

    steps(cache, row)
    assert cache.sum(1).nonzero().flatten().tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert _peak(cache.clone) > cache.nbytes // 2
    assert _peak(lambda: steps(cache, row)) < cache.nbytes // 8  # a row, which the kernel of gr_put makes


def _peak(run: Callable[[], Any]) -> int:
    """Return the largest number of bytes by which memory grows while ``run`` runs."""

    def now(line: str) -> int:
        return int(Path("/proc/self/status").read_text().partition(f"{line}:")[2].split()[0]) << 10

    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = now("VmRSS")
    run()
    return now("VmHWM") - before


class Writes(torch.nn.Module):
    """Writes a new tensor and views of one base, with the operators of each."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (
            PROGRAMS["a new tensor"](ops, x) + PROGRAMS["views of one base"](ops, x) for ops in (aten, beside)
        )
        return first, second


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_export() -> None:
    x = torch.randn(3, 4)
    shapes = ({1: torch.export.Dim("n", min=2, max=99)},)
    program = torch.export.export(Writes(), (x,), dynamic_shapes=shapes)
    lowered = program.run_decompositions()
    code = lowered.graph_module.code
    assert code.count("auto_functionalized_v2(torch.ops.aten.gr_put.default") == 3
    assert code.count("auto_functionalized_v2(torch.ops.gr_beside.gr_put.default") == 3
    for each in (x, torch.randn(3, 7)):
        torch.testing.assert_close(program.module()(each), Writes()(each))
        torch.testing.assert_close(lowered.module()(each), Writes()(each))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_ahead_of_time(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    program = torch.export.export(Writes(), (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "writes.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), Writes()(x))


SCRIPT = """
def program(x: Tensor, key: Optional[Tensor]) -> Tensor:
    y, low, high, query = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x), x.clone()
    torch.ops.aten.gr_put(x[0], y[0])
    torch.ops.aten.gr_put(x[1], y[1], 3)
    torch.ops.aten.gr_add_to(y[2], x[2])
    torch.ops.aten.gr_rotate(x, query, key, 3)
    return torch.ops.aten.gr_sides(x, low, high) + low - high + y + query
"""


def test_script_keeps_the_call() -> None:
    program = torch.jit.CompilationUnit(SCRIPT).program
    assert str(program.graph).count("::gr_") == 5
    x = torch.randn(3, 4)
    for _ in range(3):  # with profiling, then optimized
        key = torch.zeros(3, 4)
        expected = x * torch.tensor([[2.0], [3.0], [1.0]])
        torch.testing.assert_close((program(x, key), key), (expected + 2 * x, -3 * x))
        torch.testing.assert_close(program(x, None), expected + 2 * x)
