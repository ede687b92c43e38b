"""opcheck, torch.compile, export and TorchScript, with every operator of the folder that they support."""

import operator
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support import aten, real
from torch import Tensor
from torch._decomp import core_aten_decompositions, global_decomposition_table
from torch.library import opcheck
from torch.utils._pytree import tree_leaves

SAMPLES: dict[str, tuple[Any, ...]] = {
    "gr_mix.default": (real(2, 3), real(3)),
    "gr_mix_.default": (torch.ones(3), torch.ones(3)),
    "gr_mix.out": (torch.ones(3), torch.ones(3)),
    "gr_row_sum.default": (real(2, 3), 0),
    "gr_extent.default": (real(2, 3),),
    "gr_negate.default": (real(2),),
    "gr_axpy.default": (real(2), real(2)),
    "gr_square.default": (real(2),),
    "gr_square_.default": (torch.ones(2),),
    "gr_cube.default": (real(2),),
    "gr_paint_.default": (torch.ones(2), 3),
    "gr_half_.default": (torch.ones(2),),
    "gr_maybe_add.default": (real(2), None, real(2)),
    "gr_sum_list.default": ([real(2), real(2)],),
    "gr_sum_some.default": (real(2), [None, torch.ones(2, dtype=torch.double)]),
    "gr_poly.default": (real(2), [1, 2]),
    "gr_factory.default": ([2, 3],),
    "gr_full_like.default": (torch.ones(2), 3),
    "gr_two.default": (real(2),),
    "gr_three.default": (torch.ones(5), 2),
    "gr_pieces.default": (real(4), 2),
    "gr_head_and_tail.default": (torch.ones(3),),
    "gr_join.Tensor": (real(2), real(2)),
    "gr_join.Scalar": (real(2), 2.5),
    "gr_join.str": (real(2), "ab"),
    "lerp.gr_mode": (real(2), "half"),
    "add.gr_word": (real(2), "half"),
    "gr_turn.default": (real(2, 2),),
    "gr_diag.default": (real(2, 2),),
    "gr_diag_copy.default": (real(2, 2),),
    "gr_window.default": (real(4), 1, 2),
    "gr_halves.default": (real(4),),
    "gr_swap.default": (real(2, 3),),
    "gr_strided.default": (torch.ones(2, 3),),
    "gr_gate.default": (real(3),),
    "fft_gr_center.default": (torch.ones(3),),
    "linalg_gr_anti_trace.default": (real(3, 3),),
    "special_gr_bump.default": (real(3),),
    "gr_smooth.default": (real(3),),
    "gr_smooth_backward.default": (real(3), real(3), 2),
    "gr_logistic.default": (real(3),),
    "gr_outer.default": (real(3), real(2)),
    "gr_take.default": (real(3), torch.tensor([0, 1]), torch.ones(1)),
    "gr_cat.default": ([real(3), real(2)],),
    "gr_moments.default": (real(3, 2), 1),
    "gr_by_key.default": (real(3),),
    "gr_keep_all.default": (real(3), 1.5, None, [1, 2], "mode", 3, 4),
    "gr_steps.default": (3,),
    "gr_is_word.default": ("word",),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    kwargs = {"out": torch.empty(3)} if name.endswith(".out") else {}
    opcheck(operator.attrgetter(name)(aten), SAMPLES[name], kwargs)


PARTS = (torch.gr_parts, torch.gr_parts_explicit, torch.gr_parts_composed)
COMPILED: dict[str, Callable[[Tensor], Any]] = {
    "gr_mix": lambda x: torch.gr_mix(x, x, alpha=3).gr_square(),
    "in place": lambda x: x.clone().gr_mix_(x).gr_paint_(2).gr_half_() + x,
    "view": lambda x: torch.gr_diag(x).gr_square() + torch.gr_swap(x).gr_turn().sum(),
    "changed view": lambda x: torch.gr_diag(y := x.clone()).mul_(2).sum() + y,
    "window": lambda x: torch.gr_window(x, 1, 2) * x.gr_halves(0)[0],
    "return a view": lambda x: (torch.gr_swap(x), torch.gr_window(x, 0, 1)),
    "named": lambda x: torch.gr_extent(x, dim=1).high + torch.gr_moments(x, 1).mean,
    "module": lambda x: torch.linalg.gr_anti_trace(x) + torch.nn.functional.gr_gate(x) + torch.special.gr_bump(x),
    "overload": lambda x: torch.lerp(x, "half") + x.gr_join("ab") + torch.add(x, "four"),
    "factory": lambda x: torch.gr_factory(x.shape[0]) + torch.gr_full_like(x, 2),
    "list": lambda x: torch.gr_cat([*torch.gr_pieces(x, 2), torch.gr_sum_list([x, x])]),
    "ufunc": lambda x: torch.gr_axpy(x, x, alpha=2),
    "mutable": lambda x: torch.gr_tally(x.detach(), y := x.detach().clone()) + y,
    "own decomposition": lambda x: torch.nn.functional.gelu(x, 3),
    "made in the graph": lambda x: x[:, :3] + torch.gr_steps(3) + torch.gr_steps_composed(),
    "results of several kinds": lambda x: torch.gr_seven(x)[3] + torch.gr_results_composed(x)[0][1],
    "none": lambda x: (torch.gr_part(x, False), x + 1),
    "none among results": lambda x: [p(x, both) for p in PARTS for both in (False, True)],
    "vmap": lambda x: torch.vmap(torch.gr_normalize)(x.detach()),
}


def gradient_of(results: Any, x: Tensor) -> tuple[Tensor, ...] | None:
    summed = [t.sum() for t in tree_leaves(results) if isinstance(t, Tensor) and t.requires_grad]
    return torch.autograd.grad(sum(summed), x) if summed else None


def check_compiled(functions: Sequence[Callable[[Tensor], Any]], **options: Any) -> None:
    """Check that results and gradients of functions in one graph are those of eager mode, for two sizes."""
    compiled = torch.compile(lambda x: [function(x) for function in functions], fullgraph=True, **options)
    for size in (4, 5) if options.get("dynamic") else (4,):
        x = torch.randn(size, 4, requires_grad=True)
        found, expected = compiled(x), [function(x) for function in functions]
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradient_of(found, x), gradient_of(expected, x))


def test_compile_with_sizes_that_change() -> None:
    window = lambda x: torch.gr_window(x, 1, x.shape[0] - 1).gr_row_sum()  # noqa: E731
    check_compiled([window, lambda x: torch.gr_factory(x.shape[0] - 1)], backend="aot_eager", dynamic=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_inductor() -> None:
    check_compiled([*COMPILED.values()])


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.gr_diag(torch.gr_mix(x, x)).gr_square() + torch.lerp(x[0], "half") + torch.gr_factory(1)

    x = torch.randn(3, 3)
    program = torch.export.export(Model(), (x,))
    torch.testing.assert_close(program.module()(x), Model()(x))
    assert "aten.gr_mix.default" in program.graph_module.code.replace("torch.ops.", "")
    lowered = program.run_decompositions()
    torch.testing.assert_close(lowered.module()(x), Model()(x))


def test_what_pytorch_registers_for_a_name_leaves_added_overloads_alone() -> None:
    from torch._inductor.lowering import lowerings

    added = {aten.lerp.gr_mode, aten.add.gr_word, aten.add_.gr_word, aten.special_entr.gr_times, aten.zeros.gr_word}
    for table in global_decomposition_table.values():
        assert added.isdisjoint(table)
    for op in added & lowerings.keys():  # compiled by another test, so it has a fallback to its kernel
        assert lowerings[op] is not lowerings.get(op.overloadpacket)
    assert torch._C.DispatchKey.Meta not in aten.zeros.gr_word.py_kernels


def test_an_added_overload_has_its_own_decomposition() -> None:
    assert global_decomposition_table["post_autograd"][aten.gelu.default].__name__ == "gelu"
    assert global_decomposition_table["post_autograd"][aten.gelu.gr_times].__name__ == "gelu_gr_times"
    assert core_aten_decompositions()[aten.gelu.gr_times].__name__ == "gelu_gr_times"


def test_a_meta_function_goes_before_a_decomposition() -> None:
    assert global_decomposition_table["post_autograd"][aten.gr_negate.default].__name__ == "gr_negate"
    assert aten.gr_negate.default.py_kernels[torch._C.DispatchKey.Meta].__name__ == "meta_gr_negate"  # the folder's
    meta = aten.gelu.gr_times.py_kernels[torch._C.DispatchKey.Meta]
    assert meta.__name__ == "gelu_gr_times"  # there is no other


def test_a_view_meta_is_known_to_python() -> None:
    """AOTAutograd replays views with these classes, and pickles them in its cache."""
    for name in ("gr_diag", "gr_window", "gr_halves", "gr_swap"):
        assert hasattr(torch._C._functionalization, f"{name}_ViewMeta")


def test_script() -> None:
    @torch.jit.script
    def function(x: Tensor) -> tuple[Tensor, int, Tensor, list[Tensor]]:
        y = torch.gr_mix(x, x, alpha=3).gr_mix_(x)
        low, high = torch.gr_extent(y, dim=0)
        z = torch.gr_join(low, "ab") + torch.gr_diag(y, 1).sum() + torch.lerp(high, "half")
        return z, torch.gr_count(x), torch.gr_factory([2], dtype=torch.long), torch.gr_pieces(x, 2)

    x = torch.arange(9.0).reshape(3, 3)
    z, count, made, pieces = function(x)
    y = 6 * x
    torch.testing.assert_close(z, y.amin(0) * 2 + y.diagonal(1).sum() + y.amax(0) / 2)
    assert (count, made.tolist(), len(pieces)) == (8, [1, 1], 2)


def test_trace() -> None:
    x = torch.randn(3, 3)
    traced = torch.jit.trace(lambda x: torch.gr_mix(x, x).gr_diag() + torch.gr_two(x)[0].gr_swap().sum(), x)
    kinds = {node.kind() for node in traced.graph.nodes()}
    assert {"aten::gr_mix", "aten::gr_diag", "aten::gr_two", "aten::gr_swap"} <= kinds
    y = torch.randn(3, 3)
    torch.testing.assert_close(traced(y), (3 * y).diagonal() + y.sin().sum())
