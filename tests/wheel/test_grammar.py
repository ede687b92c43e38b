"""The grammar of native_functions.yaml and derivatives.yaml, called on a wheel made from the folder ``grammar``.

Expected values come from plain tensor operations or from NumPy.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils import cpp_extension
from torch.utils._python_dispatch import TorchDispatchMode

assert "graft" in torch.__version__, f"the torch under test is {torch.__version__}, not a grafted wheel"
if not hasattr(torch, "gr_mix"):
    pytest.exit("this wheel has no gr_ operators: build it with --native tests/wheel/grammar", 3)

aten = torch.ops.aten
NONE = -99  # what the kernels write for an argument that is None


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def real(*size: int) -> Tensor:
    """A random tensor to differentiate at."""
    return torch.randn(*size, dtype=torch.double, requires_grad=True)


def complex_(*size: int) -> Tensor:
    """A random complex tensor to differentiate at."""
    return torch.randn(*size, dtype=torch.cdouble, requires_grad=True)


def check_gradients(function: Callable[..., Any], *inputs: Any, second: bool = True, forward: bool = True) -> None:
    """Compare the formulas with finite differences: backward, forward and the gradient of the gradient."""
    assert gradcheck(function, inputs, check_forward_ad=forward, check_undefined_grad=True)
    if second:
        assert gradgradcheck(function, inputs)


def schema(name: str, overload: str = "default") -> torch._C.FunctionSchema:
    """The schema of an operator."""
    return getattr(getattr(aten, name), overload)._schema


class Record(TorchDispatchMode):
    """Notes the operators that reach the backend."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


# --- structured -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.half, torch.bfloat16, torch.int, torch.cfloat])
@pytest.mark.parametrize("size", [(), (1,), (7,), (3, 40), (0, 2)])
def test_structured_with_an_iterator(dtype: torch.dtype, size: tuple[int, ...]) -> None:
    x, y = torch.randn(size).mul(4).to(dtype), torch.randn(size).mul(4).to(dtype)
    torch.testing.assert_close(torch.gr_mix(x, y), x + 2 * y)
    torch.testing.assert_close(x.gr_mix(y, alpha=3), x + 3 * y)
    out = torch.empty_like(x)
    assert torch.gr_mix(x, y, out=out) is out
    torch.testing.assert_close(out, x + 2 * y)
    expected = x + 2 * y
    assert x.gr_mix_(y) is x
    torch.testing.assert_close(x, expected)


def test_structured_with_an_iterator_broadcasts_promotes_and_refuses() -> None:
    x, y = torch.ones(3, 1, dtype=torch.int), torch.arange(2.0)
    torch.testing.assert_close(torch.gr_mix(x, y), torch.tensor([[1.0, 3.0]] * 3))
    torch.testing.assert_close(torch.gr_mix(x.expand(3, 4).t(), y[1]), torch.full((4, 3), 3.0))
    with pytest.raises(RuntimeError, match="bool is not a number"):
        torch.gr_mix(y > 0, y > 0)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.gr_mix_(y[:1])
    with pytest.raises(TypeError, match="gr_mix"):
        torch.gr_mix(x, y, 3)


def test_the_cuda_and_mps_kernels_of_a_cpu_wheel_are_absent() -> None:
    for operator, key in itertools.product(("gr_mix.out", "gr_cuda_only", "gr_backend"), ("CUDA", "MPS")):
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", key)
    with pytest.raises(NotImplementedError, match="gr_cuda_only"):
        torch.gr_cuda_only(torch.ones(2))


def test_structured_without_an_iterator_hands_on_what_it_computed() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.gr_row_sum(x), x.sum(-1))
    torch.testing.assert_close(x.gr_row_sum(-2, True), x.sum(0, keepdim=True))
    out = torch.empty(0)
    torch.gr_row_sum(x, dim=1, out=out)
    torch.testing.assert_close(out, x.sum(1))
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.gr_row_sum(2)
    with pytest.raises(RuntimeError, match="at least one dimension"):
        torch.gr_row_sum(torch.ones(()))
    check_gradients(lambda x: torch.gr_row_sum(x, 0, keepdim=True), real(2, 3))


def test_structured_with_two_named_outputs() -> None:
    x = torch.randn(3, 4)
    extent = torch.gr_extent(x, dim=1)
    assert isinstance(extent, torch.return_types.gr_extent)
    torch.testing.assert_close(extent.low, x.amin(1))
    torch.testing.assert_close(extent.high, x.amax(1))
    assert x.gr_extent().high.shape == (4,)
    low, high = torch.empty(0), torch.empty(0)
    result = torch.gr_extent(x, out=(low, high))
    assert isinstance(result, torch.return_types.gr_extent_out)
    assert result.low is low
    torch.testing.assert_close(high, x.amax(0))


def test_structured_in_place_as_a_function() -> None:
    x = torch.randn(3)
    torch.testing.assert_close(torch.gr_negate(x), -x)
    assert not hasattr(torch.Tensor, "gr_negate")
    y = x.clone()
    assert torch.gr_negate_(y) is y
    torch.testing.assert_close(y.gr_negate_(), x)


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.half, torch.bfloat16, torch.long, torch.cfloat])
def test_ufunc_inner_loop(dtype: torch.dtype) -> None:
    x, y = torch.randn(5, 9).mul(3).to(dtype), torch.randn(5, 9).mul(3).to(dtype)
    tolerance = {torch.half: 1e-2, torch.bfloat16: 1e-1}.get(dtype, 1e-5)
    torch.testing.assert_close(torch.gr_axpy(x, y, alpha=3), x + 3 * y, rtol=0, atol=tolerance)
    torch.testing.assert_close(x.t().gr_axpy(y.t()), (x + y).t(), rtol=0, atol=tolerance)
    out = torch.empty_like(x)
    torch.gr_axpy(x, y, out=out)
    torch.testing.assert_close(out, x + y)


def test_ufunc_inner_loop_for_scalars_only() -> None:
    yes, no = torch.tensor([True, True]), torch.tensor([True, False])
    assert torch.gr_axpy(no, yes).tolist() == [True, True]
    assert torch.gr_axpy(no, no).tolist() == [True, False]
    check_gradients(lambda x, y: torch.gr_axpy(x, y, alpha=3), real(2, 3), real(3))


# --- functional, out and in-place, by hand and generated --------------------------------------------------------------


@pytest.mark.parametrize("name", ["square", "half", "cube", "logistic"])
def test_functional_in_place_and_out(name: str) -> None:
    expected_of = {
        "square": lambda x: x * x,
        "half": lambda x: x / 2,
        "cube": lambda x: x**3,
        "logistic": lambda x: 1 / (1 + (-x).exp()),
    }
    x = torch.randn(4)
    expected = expected_of[name](x)
    torch.testing.assert_close(getattr(torch, f"gr_{name}")(x), expected)
    out = torch.empty(4)
    assert getattr(aten, f"gr_{name}").out(x, out=out) is out
    torch.testing.assert_close(out, expected)
    if name != "cube":
        assert getattr(torch, f"gr_{name}_")(x) is x
        torch.testing.assert_close(x, expected)


def test_a_hand_written_out_is_bound_and_a_generated_one_is_not() -> None:
    out = torch.empty(2)
    torch.gr_square(torch.ones(2), out=out)
    assert out.tolist() == [1, 1]
    with pytest.raises(TypeError, match="out"):
        torch.gr_cube(torch.ones(2), out=out)


def test_functional_and_out_generated_from_in_place() -> None:
    x = torch.zeros(3)
    assert aten.gr_paint(x, 4).tolist() == [4, 4, 4]
    assert x.tolist() == [0, 0, 0]
    assert aten.gr_paint.out(x, 5, out=torch.empty(3)).tolist() == [5, 5, 5]
    assert torch.gr_paint_(x, 6) is x
    assert x.gr_paint_(value=7).tolist() == [7, 7, 7]
    assert not hasattr(torch, "gr_paint"), "upstream binds no operator that is generated whole"


def test_functional_and_out_generated_from_mutable() -> None:
    x, total = torch.ones(2), torch.full((2,), 10.0)
    assert torch.gr_tally(x, total).tolist() == [10, 10]
    assert total.tolist() == [11, 11]
    before, after = aten.gr_tally_functional(x, total)
    assert (before.tolist(), after.tolist(), total.tolist()) == ([11, 11], [12, 12], [11, 11])
    out = torch.empty(2)
    aten.gr_tally.out(x, total, out=out)  # torchgen's kernel calls the functional variant and drops the new total
    assert out.tolist() == [11, 11]


def test_functional_and_out_generated_from_an_in_place_list() -> None:
    xs = [torch.zeros(2), torch.ones(1)]
    assert torch.gr_bump_all_(xs, 2) is None
    assert [x.tolist() for x in xs] == [[2, 2], [3]]
    assert [x.tolist() for x in aten.gr_bump_all(xs)] == [[3, 3], [4]]
    outs = [torch.empty(2), torch.empty(1)]
    aten.gr_bump_all.out(xs, 5, out=outs)
    assert [x.tolist() for x in outs] == [[7, 7], [8]]
    assert [x.tolist() for x in xs] == [[2, 2], [3]]


def test_foreach_takes_its_derivative_from_the_plain_operator() -> None:
    xs = [real(2), real(3)]
    for squared, x in zip(torch._foreach_gr_square(xs), xs, strict=True):
        torch.testing.assert_close(squared, x * x)
    check_gradients(lambda *xs: torch._foreach_gr_square(list(xs)), *xs, second=False, forward=False)
    ys = [x.detach().clone() for x in xs]
    assert type(torch._foreach_gr_square_(ys)) is type(torch._foreach_add_([torch.ones(1)], 1))
    torch.testing.assert_close(ys[0], (xs[0] * xs[0]).detach())
    leaf = real(2)
    copy = leaf.clone()
    torch._foreach_gr_square_([copy])
    (grad,) = torch.autograd.grad(copy.sum(), leaf)
    torch.testing.assert_close(grad, 2 * leaf.detach())


# --- arguments --------------------------------------------------------------------------------------------------------


def test_optional_tensors() -> None:
    x, y, z = real(3), real(3), real(3)
    torch.testing.assert_close(torch.gr_maybe_add(x), x)
    torch.testing.assert_close(x.gr_maybe_add(third=z), x + 2 * z)
    check_gradients(lambda x, y: torch.gr_maybe_add(x, y), x, y)
    check_gradients(lambda x, z: torch.gr_maybe_add(x, None, z), x, z)
    check_gradients(torch.gr_maybe_add, x, y, z)


def test_tensor_lists() -> None:
    xs = [real(3), real(3), real(3)]
    torch.testing.assert_close(torch.gr_sum_list(xs, scale=2), 2 * sum(xs))
    check_gradients(lambda *xs: torch.gr_sum_list(list(xs), scale=2), *xs, forward=False)
    with pytest.raises(TypeError, match="tuple of Tensors"):
        torch.gr_sum_list(xs[0])


def test_optional_tensors_in_a_list() -> None:
    x, y = real(2), torch.ones(2, dtype=torch.double)
    torch.testing.assert_close(x.gr_sum_some([y, y]), x + 2)
    torch.testing.assert_close(aten.gr_sum_some(x, [None, y]), x + 1)
    torch.testing.assert_close(torch.gr_sum_some(x, []), x)
    check_gradients(lambda x: x.gr_sum_some([y]), x)
    with pytest.raises(TypeError, match="NoneType"):  # Python's argument parser, upstream's too: see index_put
        x.gr_sum_some([None, y])


def test_a_list_of_fixed_length() -> None:
    assert torch.gr_pair([torch.tensor(5), torch.tensor(2)]) == 3
    with pytest.raises(TypeError):
        torch.gr_pair([torch.ones(1)] * 3)


def test_scalar_lists() -> None:
    x = real(4)
    torch.testing.assert_close(torch.gr_poly(x, [1, 2.5, 3]), 1 + 2.5 * x + 3 * x * x)
    check_gradients(lambda x: torch.gr_poly(x, [1, 2.5, -3, 0.5]), x)


def test_integers_and_their_defaults() -> None:
    x = torch.ones(1)
    # Python's argument parser, upstream's too, reads the default `Mean` of a reduction as 0; the schema says 1.
    assert aten.gr_ints(x).tolist() == [3, NONE, 1, 1, NONE, 4, 5, 6, NONE, NONE, 1, NONE]
    defaults = [3, NONE, 1, 1, NONE, 4, 5, 6, NONE, NONE, 0, NONE]
    assert torch.gr_ints(x).tolist() == defaults
    given = torch.gr_ints(x, 30, 31, [32, 33], [34], [35, 36, 37], 38, 39, [40, 41], (42, 43), reduction=2, pair=7)
    assert given.tolist() == [30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 2, 7, 7]
    assert torch.gr_ints(x, c=8, e=(), g=9, reduction=1).tolist() == [3, NONE, 8, 8, NONE, 6, 9, NONE, 1, NONE]
    with pytest.raises(TypeError, match="int"):
        torch.gr_ints(x, 1.5)
    with pytest.raises(TypeError, match="positional"):
        torch.gr_ints(x, 1, 2, [3, 4], [5], [6], 7, 8, [9], [10], 2)


def test_floats_and_numbers() -> None:
    x = torch.ones(1)
    assert torch.gr_floats(x).tolist() == [0.5, NONE, 1e-05, 2.5, NONE]
    assert torch.gr_floats(x, 1, 2, [3, 4.5], 5, 6, f=7.5).tolist() == [1, 2, 3, 4.5, 5, 6, 7.5]


def test_booleans() -> None:
    x = torch.ones(1)
    assert torch.gr_bools(x).tolist() == [1, 0, NONE]
    assert torch.gr_bools(x, False, b=True, c=False).tolist() == [0, 1, 0]


def test_strings() -> None:
    def text(*args: Any, **kwargs: Any) -> list[int]:
        return torch.gr_strings(torch.ones(1), *args, **kwargs).tolist()

    assert text() == [*b"\"'\\", NONE, *b"sum"]
    assert text("é", "", c="x\0y") == [*np.frombuffer("é".encode(), np.int8), *b"x\0y"]
    assert text("a", b="bc", c="") == [*b"abc"]


def test_kinds_of_tensors() -> None:
    x = torch.ones(1)
    assert torch.gr_kinds(x, dtype=torch.long).tolist() == [4, NONE, NONE, NONE, NONE, 0]
    kinds = torch.gr_kinds(
        x,
        dtype=torch.half,
        other=torch.double,
        layout=torch.sparse_coo,
        device="meta",
        pin_memory=True,
        memory_format=torch.channels_last,
    )
    assert kinds.tolist() == [5, 7, 1, 14, 1, 2]


def test_generator() -> None:
    x = torch.zeros(1, dtype=torch.double)
    generator = torch.Generator().manual_seed(1)
    first = torch.gr_noise(x, generator=generator)
    assert 0 < first.item() < 1
    assert torch.gr_noise(x, generator=generator) != first
    assert x.gr_noise(generator=generator.manual_seed(1)) == first
    torch.manual_seed(3)
    second = torch.gr_noise(x, 5)
    torch.manual_seed(3)
    assert torch.gr_noise(x, 5) == second
    assert torch.Tag.nondeterministic_seeded in aten.gr_noise.default.tags


def test_storage_device_index_and_no_arguments() -> None:
    x = torch.ones(3)
    assert torch.gr_shares_storage(x, x[1:].untyped_storage())
    assert not torch.gr_shares_storage(x, torch.ones(3).untyped_storage())
    assert torch.gr_next_device(4) == 5
    assert torch.gr_nothing() is None
    assert torch.gr_stream_id(x, torch.Stream(stream_id=3, device_index=0, device_type=1)) == 3


def test_factory() -> None:
    x = torch.gr_factory(3)
    assert (x.tolist(), x.dtype, x.requires_grad) == ([1, 1, 1], torch.float, False)
    x = torch.gr_factory((2, 1), value=4, dtype=torch.long, device="cpu")
    assert (x.tolist(), x.dtype) == ([[4], [4]], torch.long)
    assert torch.gr_factory(2, 3).shape == (2, 3)
    assert torch.gr_factory(2, requires_grad=True).requires_grad
    assert torch.gr_factory([2], device="meta").is_meta
    try:
        torch.set_default_dtype(torch.double)
        assert torch.gr_factory(2).dtype == torch.double
    finally:
        torch.set_default_dtype(torch.float)
    with pytest.raises(TypeError):
        torch.gr_factory("3")


def test_factory_in_a_device_context() -> None:
    with torch.device("meta"):
        assert torch.gr_factory(2).is_meta


def test_factory_like() -> None:
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.gr_full_like(x, 7)
    assert (y.shape, y.stride(), y.unique().tolist()) == (x.shape, x.stride(), [7])
    assert torch.gr_full_like(x, 7, memory_format=torch.contiguous_format).is_contiguous()
    assert torch.gr_full_like(x, 2, dtype=torch.int, device="meta").dtype == torch.int
    assert torch.gr_full_like(x, 2, requires_grad=True).requires_grad
    assert not torch.gr_full_like(real(2), 2).requires_grad


def test_new_factory_method() -> None:
    x = torch.ones(1, dtype=torch.half)
    assert x.new_gr_filled((2,), 3).tolist() == [3, 3]
    assert x.new_gr_filled([2], 3).dtype == torch.half
    assert x.new_gr_filled((2,), 3, dtype=torch.int, requires_grad=False).dtype == torch.int


def test_a_factory_that_takes_a_tensor() -> None:
    assert torch.gr_made_from(torch.arange(3), dtype=torch.double).tolist() == [0, 1, 2]
    assert torch.gr_made_from(torch.arange(3), requires_grad=False).dtype == torch.float


def test_symbolic_sizes_reach_a_kernel_that_takes_them() -> None:
    x = torch.ones(2)
    assert torch.gr_lengths(x).tolist() == [[11] * 4] * 3
    assert torch.gr_lengths(x, stride=[2, 3], size=[1, 2]).tolist() == [[32, 32]]
    graph = make_fx(lambda x: torch.gr_window(x, 1, x.shape[0] - 2) * 2, tracing_mode="symbolic")(torch.ones(7))
    torch.testing.assert_close(graph(torch.arange(5.0)), torch.tensor([2.0, 4.0, 6.0]))
    graph = make_fx(lambda x: torch.gr_lengths(x, size=(x.shape[0], 2)), tracing_mode="symbolic")(torch.ones(7))
    assert graph(torch.ones(3)).shape == (3, 2)


# --- returns ----------------------------------------------------------------------------------------------------------


def test_two_tensors() -> None:
    x = real(3)
    first, second = x.gr_two()
    assert type(torch.gr_two(x)) is tuple
    torch.testing.assert_close(first, x.sin())
    torch.testing.assert_close(second, x.cos())
    check_gradients(torch.gr_two, x)
    check_gradients(lambda x: torch.gr_two(x)[1], x)


def test_three_named_tensors_and_their_out() -> None:
    x = torch.arange(6.0)
    three = x.gr_three(3)
    assert isinstance(three, torch.return_types.gr_three)
    assert three.n_fields == 3
    assert (three.first.tolist(), three.second.tolist(), three.indices.tolist()) == ([0, 1, 2], [3, 4, 5], [0, 1, 2])
    outs = (torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.long))
    result = torch.gr_three(x, n=2, out=outs)
    assert isinstance(result, torch.return_types.gr_three_out)
    assert outs[1].tolist() == [2, 3]
    assert torch.gr_three(x.to("meta")).indices.dtype == torch.long
    assert pickle.loads(pickle.dumps(three)).indices.tolist() == [0, 1, 2]
    tree = torch.utils._pytree.tree_map(lambda t: t + 1, three)
    assert isinstance(tree, torch.return_types.gr_three)


def test_a_list_of_tensors() -> None:
    x = real(5, 2)
    pieces = torch.gr_pieces(x, 2)
    assert isinstance(pieces, tuple)
    torch.testing.assert_close(torch.cat(pieces), x)
    check_gradients(lambda x: x.gr_pieces(2), x, forward=False)
    check_gradients(lambda x: x.gr_pieces(2)[1], x, forward=False)
    outs = [torch.empty(0, dtype=torch.double) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aten.gr_pieces.out(x.detach(), 2, out=outs)
    assert [out.shape for out in outs] == [(3, 2), (2, 2)]


def test_a_tensor_and_a_list() -> None:
    head, tail = torch.gr_head_and_tail(torch.arange(3))
    assert head == 0
    assert [x.item() for x in tail] == [1, 2]


def test_no_tensor_returned() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert torch.gr_count(x) == x.gr_count() == 3
    assert type(x.gr_count()) is int
    assert torch.gr_mean_value(x) == 1.5
    assert type(torch.gr_mean_value(x)) is float
    assert x.gr_is_square() is True
    assert torch.gr_is_square(x[0]) is False
    # Python gets a Scalar as a tensor.
    assert (x.long().gr_first().item(), x.long().gr_first().dtype) == (0, torch.long)
    assert (x > 5).gr_first().dtype == torch.bool
    assert type(aten.gr_first(x)) is float
    assert torch.gr_range(x) == (3.0, 4)
    assert torch.gr_promoted(x.long(), 2.5) == torch.float
    assert x.long().gr_promoted(2) == torch.long
    assert aten._gr_sym_length_forward(x) == 8
    assert aten._gr_is_even_forward(x) is True


def test_nothing_returned() -> None:
    assert torch.gr_check(torch.ones(2)) is None
    with pytest.raises(RuntimeError, match="gr_check failed"):
        torch.gr_check(torch.zeros(2))
    with pytest.raises(RuntimeError, match="mine"):
        torch.gr_check(torch.zeros(2), message="mine")


def test_quantization_scheme_returned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)
    assert torch.gr_scheme(x) == torch.per_tensor_affine


# --- overloads --------------------------------------------------------------------------------------------------------


def test_overloads_of_a_new_name() -> None:
    x, y = real(3), real(3)
    torch.testing.assert_close(torch.gr_join(x, y), x * y)
    torch.testing.assert_close(x.gr_join(3), x * 3)
    torch.testing.assert_close(x.gr_join("abc", 2), x * 6)
    torch.testing.assert_close(torch.gr_join(x, other="abc"), x * 3)
    assert set(aten.gr_join.overloads()) == {"Tensor", "Scalar", "str"}
    check_gradients(torch.gr_join, x, y)
    check_gradients(lambda x: torch.gr_join(x, 2.5), x)
    check_gradients(lambda x: torch.gr_join(x, "abc", times=2), x)
    with pytest.raises(TypeError, match="gr_join"):
        torch.gr_join(x, [1])


def test_a_new_overload_of_lerp() -> None:
    x = real(3)
    torch.testing.assert_close(torch.lerp(x, "half"), x / 2)
    torch.testing.assert_close(x.lerp(mode="all"), x)
    with pytest.raises(ValueError, match="mode must be"):
        torch.lerp(x, "none")
    assert aten.lerp.gr_mode_out(x.detach(), "half", out=torch.empty(3, dtype=torch.double)).allclose(x / 2)
    check_gradients(lambda x: torch.lerp(x, "half"), x)


def test_the_old_overloads_of_lerp() -> None:
    x, end, weight = real(3), real(3), real(3)
    torch.testing.assert_close(torch.lerp(x, end, 0.25), x + 0.25 * (end - x))
    torch.testing.assert_close(x.lerp(end, weight=weight), x + weight * (end - x))
    out = torch.empty(3, dtype=torch.double)
    torch.lerp(x.detach(), end.detach(), 0.5, out=out)
    torch.testing.assert_close(out, ((x + end) / 2).detach())
    y = x.detach().clone()
    assert y.lerp_(end.detach(), 1) is y
    torch.testing.assert_close(y, end.detach())
    check_gradients(torch.lerp, x, end, weight)
    with pytest.raises(TypeError, match="lerp"):
        torch.lerp(x, end)


def test_a_new_overload_of_add_and_its_operator() -> None:
    x = real(3)
    torch.testing.assert_close(torch.add(x, "four"), x + 4)
    torch.testing.assert_close(x.add(word="four"), x + 4)
    torch.testing.assert_close(x + "four", x + 4)
    y = torch.zeros(2)
    y += "abc"
    assert y.tolist() == [3, 3]
    assert y.add_("ab").tolist() == [5, 5]
    out = torch.empty(2)
    assert torch.add(y, "a", out=out).tolist() == [6, 6]
    check_gradients(lambda x: x + "four", x)
    z = x.clone()
    z += "abc"
    torch.testing.assert_close(torch.autograd.grad(z.sum(), x)[0], torch.ones(3, dtype=torch.double))


def test_the_old_overloads_of_add_and_its_operator() -> None:
    x, y = real(3), real(3)
    expected = torch.from_numpy(x.detach().numpy() + 2 * y.detach().numpy())
    torch.testing.assert_close(torch.add(x, y, alpha=2).detach(), expected)
    torch.testing.assert_close(x.add(2 * y).detach(), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.add(x, 2, y).detach(), expected)  # a signature of deprecated.yaml
        torch.testing.assert_close(x.add(2, y).detach(), expected)
    torch.testing.assert_close((x + 1).detach(), (1 + x).detach())
    torch.testing.assert_close((x + np.float64(1)).detach(), x.detach() + 1)
    out = torch.empty(3, dtype=torch.double)
    assert torch.add(x.detach(), y.detach(), alpha=2, out=out) is out
    torch.testing.assert_close(out, expected)
    z = x.detach().clone()
    z += 2 * y.detach()
    torch.testing.assert_close(z, expected)
    check_gradients(lambda x, y: torch.add(x, y, alpha=2), x, y)

    class Right:
        def __radd__(self, other: object) -> str:
            return "right"

    assert x + Right() == "right"
    with pytest.raises(TypeError, match="unsupported operand"):
        x + object()
    torch.testing.assert_close("four" + x, x + 4)


def test_new_overloads_in_modules_and_of_a_factory() -> None:
    x = real(3)
    torch.testing.assert_close(torch.special.entr(x.abs(), 3), 3 * torch.special.entr(x.abs()))
    torch.testing.assert_close(torch.nn.functional.gelu(x, 3), 3 * torch.nn.functional.gelu(x))
    torch.testing.assert_close(torch.nn.functional.gelu(x, approximate="tanh"), torch.nn.GELU("tanh")(x))
    check_gradients(lambda x: torch.nn.functional.gelu(x, 3), x)
    assert torch.zeros(n=2, word="abc").tolist() == [3, 3]
    assert torch.zeros(n=2, word="abc", dtype=torch.half, device="meta").dtype == torch.half
    assert torch.zeros(2, 3).shape == torch.zeros((2, 3)).shape == (2, 3)
    assert torch.zeros(2, requires_grad=True).requires_grad


# --- views ------------------------------------------------------------------------------------------------------------

VIEWS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]] = {
    "gr_turn": (torch.gr_turn, torch.t),
    "gr_diag": (lambda x: torch.gr_diag(x, 1), lambda x: torch.diagonal(x, 1)),
    "gr_window": (lambda x: torch.gr_window(x, 1, 2), lambda x: x[1:3]),
    "gr_swap": (torch.gr_swap, lambda x: x.transpose(0, 1)),
    "gr_halves": (lambda x: torch.gr_halves(x, 1)[0], lambda x: x.chunk(2, 1)[0]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str) -> None:
    view, expected = VIEWS[name]
    x = torch.randn(4, 4)
    result = view(x)
    torch.testing.assert_close(result, expected(x), check_stride=True)
    assert result._is_view()
    assert result._base is x
    result.fill_(7)
    assert (expected(x) == 7).all()


@pytest.mark.parametrize("name", VIEWS)
def test_gradient_of_a_view(name: str) -> None:
    view, _ = VIEWS[name]
    check_gradients(view, real(4, 4))
    check_gradients(view, complex_(4, 4))


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "gr_halves"])
def test_gradient_through_an_in_place_change_of_a_view(name: str) -> None:
    view, expected = VIEWS[name]

    def change(x: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
        y = x.clone()
        view(y).mul_(3)
        return y * y

    x = real(4, 4)
    (grad,) = torch.autograd.grad(change(x, view).sum(), x)
    (wanted,) = torch.autograd.grad(change(x, expected).sum(), x)
    torch.testing.assert_close(grad, wanted)
    check_gradients(lambda x: change(x, view), x)


def test_a_view_counts_the_versions_of_its_base() -> None:
    x = torch.ones(3, 3)
    before = x._version
    torch.gr_diag(x).add_(1)
    assert x._version == before + 1
    leaf = torch.ones(3, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        torch.gr_diag(leaf).add_(1)
    with pytest.raises(RuntimeError, match="multiple views"):
        torch.gr_halves(leaf.clone())[0].add_(1)


def test_a_view_in_inference_mode_and_of_no_grad() -> None:
    with torch.inference_mode():
        assert torch.gr_swap(torch.ones(2, 3)).is_inference()
    x = torch.ones(2, 2, requires_grad=True)
    with torch.no_grad():
        y, expected = torch.gr_diag(x), torch.diagonal(x)
    assert (y.requires_grad, y.is_leaf) == (expected.requires_grad, expected.is_leaf)


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "gr_turn"])
def test_copies_of_views(name: str) -> None:
    x = real(4, 4)
    args = {"gr_diag": (1,), "gr_window": (1, 2), "gr_swap": (), "gr_halves": (1,)}[name]
    copy = getattr(torch, f"{name}_copy")
    result, expected = copy(x, *args), getattr(torch, name)(x, *args)
    torch.testing.assert_close(result, expected)
    for one in result if isinstance(result, tuple | list) else [result]:
        assert not one._is_view()
        assert one.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    check_gradients(lambda x: copy(x, *args), x)
    assert torch.Tag.view_copy in getattr(aten, f"{name}_copy").default.tags


def test_copies_of_views_into_out() -> None:
    x = torch.randn(3, 3)
    out = torch.empty(3)
    torch.gr_diag_copy(x, out=out)
    torch.testing.assert_close(out, x.diagonal())
    outs = [torch.empty(2, 3), torch.empty(1, 3)]
    torch.gr_halves_copy(x, out=outs)
    torch.testing.assert_close(outs[1], x[2:])


def test_in_place_view() -> None:
    x = torch.randn(2, 3)
    expected = x.t().clone()
    pointer, version = x.data_ptr(), x._version
    assert x.gr_swap_() is x
    assert (x.shape, x.data_ptr()) == ((3, 2), pointer)
    assert x._version >= version
    torch.testing.assert_close(x, expected)
    check_gradients(lambda x: (x * 1).gr_swap_() * 2, real(2, 3))
    assert torch.Tag.inplace_view in aten.gr_swap_.default.tags


@pytest.mark.parametrize("name", VIEWS)
def test_functionalization_of_a_view(name: str) -> None:
    view, expected = VIEWS[name]

    def change(x: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
        y = x.clone()
        view(y).mul_(3)
        view(y).add_(1)
        return y

    x = torch.randn(4, 4)
    for remove in ("mutations", "mutations_and_views"):
        graph = make_fx(torch.func.functionalize(lambda x: change(x, view), remove=remove))(x)
        torch.testing.assert_close(graph(x), change(x, expected))
        assert "mul_(" not in graph.code and "add_(" not in graph.code and ".mul_." not in graph.code
        assert remove == "mutations" or name == "gr_turn" or f"{name}_copy" in graph.code


def test_functionalization_of_in_place_out_and_mutable_operators() -> None:
    def change(x: Tensor) -> Tensor:
        y = x.clone()
        y.gr_mix_(x)
        y.gr_square_()
        y.gr_paint_(3)
        y.gr_half_()
        total = y.clone()
        before = torch.gr_tally(x, total)
        torch.gr_bump_all_([y, total])
        out = torch.empty_like(x)
        torch.gr_mix(y, total, out=out)
        z = y.gr_maybe_add(before)
        z.gr_swap_()
        return out + z.t()

    x = torch.randn(2, 3)
    graph = make_fx(torch.func.functionalize(change, remove="mutations_and_views"))(x)
    torch.testing.assert_close(graph(x), change(x))
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert {"aten.gr_paint.default", "aten.gr_tally_functional.default", "aten.gr_bump_all.default"} <= set(names)
    mutable = [name for name in names if name.startswith("aten.") and eval(name, {"aten": aten})._schema.is_mutable]
    assert mutable == []


# --- dispatch keys ----------------------------------------------------------------------------------------------------


def test_a_kernel_for_each_backend() -> None:
    x = torch.eye(3)
    assert torch.gr_backend(x) == 1
    assert x.to_sparse().gr_backend() == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert x.to_sparse_csr().gr_backend() == 3
        assert torch.nested.nested_tensor([x, x[:2]]).gr_backend() == 6
        assert torch.quantize_per_tensor(x, 1, 0, torch.qint8).gr_backend() == 5
    assert torch._efficientzerotensor(3).gr_backend() == 7
    assert torch.gr_backend(x.to("meta")).is_meta


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this processor or wheel has no oneDNN")
def test_a_kernel_for_onednn() -> None:
    assert torch.eye(3).to_mkldnn().gr_backend() == 4


def test_one_kernel_for_two_keys() -> None:
    x = torch.ones(2, 3).t()
    assert torch.gr_strided(x).stride() == (1, 3)
    assert torch.gr_strided(x.to("meta")).stride() == (1, 3)
    for key in ("CPU", "Meta"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::gr_strided", key)


def test_composite_kernels() -> None:
    x = torch.ones(2)
    assert torch.gr_new_storage(x).tolist() == [1, 1]
    assert torch.gr_nested_or_not(x).tolist() == [2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([x, torch.ones(1)])
    assert torch.gr_nested_or_not(nested).unbind()[1].tolist() == [3]
    table = torch._C._dispatch_dump
    assert "CompositeImplicitAutograd[alias]" in table("aten::gr_is_square")
    assert "CompositeImplicitAutogradNestedTensor[alias]" in table("aten::gr_nested_or_not")
    assert "CompositeExplicitAutogradNonFunctional[alias]" in table("aten::gr_new_storage")
    assert "CompositeExplicitAutograd[alias]" in table("aten::gr_square")


def test_a_kernel_in_a_namespace_of_its_own() -> None:
    assert torch.gr_elsewhere(torch.zeros(1)) == 8


def test_a_kernel_that_calls_a_function_the_base_hides() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(1, 2)])
    assert [part.unique().tolist() for part in torch.gr_nested_sum(x, x).unbind()] == [[2], [2]]


def test_a_formula_for_each_autograd_key() -> None:
    check_gradients(torch.gr_by_key, real(3))
    x = torch.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.as_nested_tensor([x, x])
    torch.gr_by_key(nested).to_padded_tensor(0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10, 10]


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("gr_mix.default", {"core", "pointwise"}),
        ("gr_row_sum.default", {"reduction"}),
        ("gr_nonzero_values.default", {"dynamic_output_shape"}),
        ("gr_count.default", {"data_dependent_output"}),
        ("gr_strided.default", {"needs_exact_strides", "nondeterministic_bitwise", "cudagraph_unsafe"}),
        ("gr_cube.out", {"generated"}),
    ],
)
def test_tags(name: str, tags: set[str]) -> None:
    operator, _, overload = name.partition(".")
    found = {tag.name for tag in getattr(getattr(aten, operator), overload).tags}
    assert tags <= found
    assert "pt2_compliant_tag" in found


# --- modules and names ------------------------------------------------------------------------------------------------


def test_nn() -> None:
    gate, x, w = torch.nn.functional.gr_gate, real(4), torch.tensor([1.0, 2, 3, 4], dtype=torch.double)
    torch.testing.assert_close(aten.gr_gate(x), x.mean())  # in Python the default is 0, a sum, as for mse_loss
    torch.testing.assert_close(gate(x, reduction=1), x.mean())
    torch.testing.assert_close(torch._C._nn.gr_gate(x, w, 2), (x * w).sum())
    out = torch.empty((), dtype=torch.double)
    assert gate(x.detach(), None, 1, out=out) is out
    torch.testing.assert_close(out, x.detach().mean())
    check_gradients(lambda x: gate(x, w, 1), x, forward=False)
    assert not hasattr(torch, "gr_gate")


def test_fft() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.fft.gr_center(x), torch.from_numpy(np.fft.fftshift(x.numpy())))
    torch.testing.assert_close(torch._C._fft.fft_gr_center(x, 1), torch.from_numpy(np.fft.fftshift(x.numpy(), 1)))


def test_linalg() -> None:
    x = torch.randn(3, 3)
    torch.testing.assert_close(torch.linalg.gr_anti_trace(x), torch.tensor(np.trace(np.fliplr(x.numpy()))))
    out = torch.empty(())
    assert torch.linalg.gr_anti_trace(x, out=out) is out
    check_gradients(torch.linalg.gr_anti_trace, real(3, 3))
    with pytest.raises(RuntimeError, match="square matrix"):
        torch.linalg.gr_anti_trace(x[:2])


def test_special_sparse_and_nested() -> None:
    x = real(3)
    torch.testing.assert_close(torch.special.gr_bump(x), (-x * x).exp())
    check_gradients(torch.special.gr_bump, x)
    assert torch.sparse.gr_count(torch.eye(3).to_sparse()) == 3
    assert torch.sparse.gr_count(torch.eye(3).to_sparse(), stored=False) == 6
    assert torch.nested.gr_width(torch.ones(2, 5)) == 5


def test_methods_only_functions_only_private_and_dunder_names() -> None:
    x = torch.ones(2)
    assert x.gr_method_only(4).tolist() == [4, 4]
    assert not hasattr(torch, "gr_method_only")
    assert not hasattr(torch.Tensor, "gr_cube")
    assert torch._gr_secret(x).tolist() == x._gr_secret().tolist() == [43, 43]
    assert "_gr_secret" not in torch.__all__
    assert x.__gr__(x).tolist() == [101, 101]


def test_backward_operators_have_no_binding_but_are_operators() -> None:
    for name in ("gr_smooth_backward", "gr_extent_backward", "gr_maybe_add_backward", "gr_outer_backward"):
        assert not hasattr(torch, name)
        assert callable(getattr(aten, name))
    grads = aten.gr_maybe_add_backward(torch.ones(1), [True, False, True])
    assert grads[1] is None
    assert (grads[0].item(), grads[2].item()) == (1, 2)


def test_ambiguous_defaults() -> None:
    x = torch.zeros(1)
    assert torch.gr_defaults(x) == 2
    assert torch.gr_defaults(x, 3, 4) == 7
    assert torch.gr_defaults(x, 3, "ab") == 60
    assert torch.gr_defaults(x, b="x") == 20


def test_in_place_with_a_const_reference() -> None:
    x = torch.ones(2)
    assert torch.gr_grow_(x, (3,)) is x
    assert x.shape == (3,)
    assert x.gr_grow_((1,)).shape == (1,)
    assert aten.gr_grow(x, (4,)).shape == (4,)


def test_dynamic_shape() -> None:
    assert torch.tensor([0, 1, 2]).gr_nonzero_values().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gr_mix", "gr_mix(Tensor self, Tensor other, *, Scalar alpha=2) -> Tensor"),
        ("gr_ints", "int reduction=1"),
        ("gr_strings", r'str a="\"\'\\", str? b=None, *, str c="sum"'),
        ("gr_halves", "gr_halves(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"),
        ("gr_bump_all_", "gr_bump_all_(Tensor(a!)[] self, Scalar step=1) -> ()"),
        ("gr_extent", "(Tensor low, Tensor high)"),
    ],
)
def test_schema(name: str, text: str) -> None:
    assert text.replace("\\'", "'") in str(schema(name)).replace("\\'", "'")


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        torch.gr_mix,
        torch.gr_axpy,
        lambda x, y: torch.gr_mix(x, y[:1], alpha=3),
        lambda x, y: x.clone().gr_mix_(y, alpha=3),
        lambda x, y: torch.gr_square(x) + y,
        lambda x, y: x.clone().gr_square_() + y,
        lambda x, y: torch.gr_negate(x) + torch.gr_negate_(y.clone()),
        lambda x, y: torch.gr_half(x) + y.clone().gr_half_(),
        lambda x, y: x.clone().gr_paint_(2) + y,
        lambda x, y: torch.gr_join(x, y),
    ],
)
@pytest.mark.parametrize("make", [real, complex_])
def test_gradients(function: Callable[..., Tensor], make: Callable[..., Tensor]) -> None:
    check_gradients(function, make(2, 3), make(2, 3))


def test_a_real_gradient_for_a_real_input_of_a_complex_result() -> None:
    check_gradients(torch.gr_mix, real(3), complex_(3))
    check_gradients(lambda x, y: torch.gr_mix(x, y, alpha=1 + 2j), complex_(3), complex_(3))


def test_gradients_of_named_outputs() -> None:
    x = torch.tensor([[1.0, 5, 2], [4, 3, 9]], dtype=torch.double, requires_grad=True)
    check_gradients(lambda x: torch.gr_extent(x, dim=1), x)
    check_gradients(lambda x: torch.gr_extent(x, dim=0).high, x)


def test_a_saved_result() -> None:
    x = real(3)
    check_gradients(torch.gr_logistic, x)
    check_gradients(lambda x: x.clone().gr_logistic_(), x)
    y = torch.gr_logistic(x)
    assert y.grad_fn._saved_result is not None
    y.data_ptr()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_values_of_every_type() -> None:
    x = real(3)
    args = (1.5, None, [1, 2], "mode", 3, 4)
    y = torch.gr_keep_all(x, *args, t=2, more=[5], size=(6, 7), factors=[0.5], flag=True, word="ab", dtype=torch.int)
    total = 1.5 + 3 + 4 + 3 + 4 + 2 + 5 + 13 + 0.5 + 1 + 2 + 3
    torch.testing.assert_close(y, x * total)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad, torch.full_like(x, total))
    node = y.grad_fn
    assert node.name() == "GrKeepAllBackward0"
    assert (node._saved_a, node._saved_b, node._saved_dims, node._saved_mode) == (1.5, None, (1, 2), "mode")
    assert (node._saved_n, node._saved_s, node._saved_t, node._saved_more) == (3, 4, 2, (5,))
    assert (node._saved_size, node._saved_factors, node._saved_flag, node._saved_word) == ((6, 7), (0.5,), True, "ab")
    y = torch.gr_keep_all(x, *args)
    assert y.grad_fn._saved_word is None
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 16.5))


def test_saved_size_instead_of_the_tensor() -> None:
    node = torch.gr_row_sum(torch.ones(2, 3, requires_grad=True)).grad_fn
    assert node._saved_self_sym_sizes == (2, 3)
    assert not hasattr(node, "_saved_self")


def test_a_node_is_a_class_of_its_own() -> None:
    node = torch.gr_square(torch.ones(1, requires_grad=True)).grad_fn
    assert type(node).__name__ == "GrSquareBackward0"
    assert type(node) is type(torch.gr_square(torch.ones(2, requires_grad=True)).grad_fn)
    assert node.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"
    assert isinstance(node, torch.autograd.graph.Node)


def test_wrap_opt_if_saves_only_what_is_needed() -> None:
    x, y = real(3), real(2)
    check_gradients(torch.gr_outer, x, y)
    node = torch.gr_outer(x, y.detach()).grad_fn
    assert node._saved_self is None
    assert node._saved_other is not None
    node = torch.gr_outer(x.detach(), y).grad_fn
    assert node._saved_other is None


def test_non_differentiable_and_not_implemented() -> None:
    x, index, other = real(4), torch.tensor([0, 2, 2]), torch.ones(1)
    check_gradients(lambda x: torch.gr_take(x, index, other)[0], x)
    taken = torch.gr_take(x, index, other)
    assert isinstance(taken, torch.return_types.gr_take)
    assert taken.values.requires_grad
    assert not taken.index_out.requires_grad
    other.requires_grad_()
    with pytest.raises(RuntimeError, match=r"derivative for .*gr_take.* is not implemented"):
        torch.gr_take(x, index, other).values.sum().backward()


def test_output_differentiability() -> None:
    assert not torch.gr_no_gradient(real(2), real(2)).requires_grad
    x = real(3, 4)
    moments = torch.gr_moments(x, 1)
    assert (moments.mean.requires_grad, moments.spread.requires_grad, moments.arg.requires_grad) == (True, True, False)
    check_gradients(lambda x: torch.gr_moments(x, 1)[:2], x)
    check_gradients(lambda x: x.gr_moments(0).spread, x)


def test_an_operator_without_a_formula() -> None:
    y = torch.gr_unlisted(real(2))
    with pytest.raises(RuntimeError, match="derivative for aten::gr_unlisted is not implemented"):
        y.sum().backward()


def test_a_list_with_hidden_helpers() -> None:
    a, b = real(2, 3), real(1, 3)
    torch.testing.assert_close(torch.gr_cat([a, b]), torch.cat([a, b]))
    check_gradients(lambda a, b: torch.gr_cat([a, b]), a, b)
    check_gradients(lambda a: torch.gr_cat([a, b.detach()], dim=-2), a)


def test_a_list_beside_a_tensor() -> None:
    a, b, weight = real(3), real(3), real(3)
    check_gradients(lambda a, b, w: torch.gr_weighted([a, b], w), a, b, weight, forward=False)
    check_gradients(lambda w: torch.gr_weighted([a.detach(), b.detach()], w), weight, forward=False)
    check_gradients(lambda b: torch.gr_weighted([a.detach(), b], weight.detach()), b, forward=False)


def test_the_gradient_of_a_gradient() -> None:
    x = real(4)
    check_gradients(lambda x: torch.gr_smooth(x, 2), x)
    check_gradients(lambda g, x: aten.gr_smooth_backward(g, x, 2), real(4), x)
    (first,) = torch.autograd.grad(torch.gr_smooth(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    torch.testing.assert_close(second, 1 - x.tanh() ** 2)
    assert first.grad_fn.name() == "GrSmoothBackwardBackward0"


def test_forward_mode() -> None:
    x, t = torch.randn(3), torch.randn(3)
    value, tangent = torch.func.jvp(torch.gr_cube, (x,), (t,))
    torch.testing.assert_close(value, x**3)
    torch.testing.assert_close(tangent, 3 * x * x * t)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        dual.gr_mix_(torch.ones(2))
        assert forward_ad.unpack_dual(dual).tangent.tolist() == [1, 1]
        with pytest.raises(NotImplementedError, match="forward AD"):
            torch.nn.functional.gr_gate(dual)


def test_out_refuses_gradients() -> None:
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.gr_mix(real(2), real(2), out=torch.empty(2, dtype=torch.double))


# --- the systems around -----------------------------------------------------------------------------------------------

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
}


def resolve(name: str) -> torch._ops.OpOverload:
    """``gr_x.default`` as an operator."""
    operator, _, overload = name.partition(".")
    return getattr(getattr(aten, operator), overload)


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    operator, args = resolve(name), SAMPLES[name]
    kwargs = {"out": torch.empty(3)} if name.endswith(".out") else {}
    opcheck(operator, args, kwargs)


@pytest.mark.parametrize("name", SAMPLES)
def test_fake_tensors(name: str) -> None:
    operator = resolve(name)
    args = torch.utils._pytree.tree_map_only(Tensor, lambda x: x.detach().clone(), SAMPLES[name])
    kwargs = {"out": torch.empty(3)} if name.endswith(".out") else {}
    expected = torch.utils._pytree.tree_leaves(operator(*args, **kwargs))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = torch.utils._pytree.tree_map_only(Tensor, mode.from_tensor, (args, kwargs))
        found = torch.utils._pytree.tree_leaves(operator(*fakes[0], **fakes[1]))
    for fake, true in zip(found, expected, strict=True):
        assert (fake.shape, fake.dtype, fake.stride()) == (true.shape, true.dtype, true.stride())


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
}


@pytest.mark.parametrize("name", COMPILED)
def test_compile(name: str) -> None:
    torch._dynamo.reset()
    function, x = COMPILED[name], torch.randn(4, 4, requires_grad=True)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    found, expected = compiled(x), function(x)
    torch.testing.assert_close(found, expected)
    if torch.utils._pytree.tree_leaves(expected)[0].requires_grad:
        total = sum(t.sum() for t in torch.utils._pytree.tree_leaves(expected))
        (wanted,) = torch.autograd.grad(total, x)
        total = sum(t.sum() for t in torch.utils._pytree.tree_leaves(found))
        torch.testing.assert_close(torch.autograd.grad(total, x)[0], wanted)


def test_compile_with_sizes_that_change() -> None:
    torch._dynamo.reset()

    def function(x: Tensor) -> Tensor:
        return torch.gr_window(x, 1, x.shape[0] - 1).gr_row_sum() + torch.gr_factory(x.shape[0] - 1)

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (4, 5, 9):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), function(x))


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


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_inductor_and_a_new_overload() -> None:
    torch._dynamo.reset()
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: torch.add(x, "four") * 2, fullgraph=True)(x), (x + 4) * 2)
    torch.testing.assert_close(torch.compile(lambda x: torch.lerp(x, "half") + 1, fullgraph=True)(x), x / 2 + 1)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_inductor() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.gr_mix(x, x, alpha=3).gr_square() + torch.gr_cube(torch.gr_diag(x))
        return y + torch.gr_window(x, 0, 1).gr_row_sum() + torch.gr_extent(x).low

    torch._dynamo.reset()
    x = torch.randn(4, 4, requires_grad=True)
    found, expected = torch.compile(function, fullgraph=True)(x), function(x)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(x.grad, wanted)


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


def test_vmap_decomposes_what_is_composite() -> None:
    x = torch.randn(2, 3, 3)
    torch.testing.assert_close(torch.vmap(torch.gr_turn)(x), x.transpose(1, 2))
    torch.testing.assert_close(torch.vmap(torch._gr_secret)(x), x + 42)


def test_vmap_falls_back_to_a_loop() -> None:
    x = torch.randn(2, 3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.vmap(torch.gr_square)(x), x * x)


@pytest.fixture
def no_loop() -> Iterator[None]:
    """Without a batching rule vmap loops over slices; here it must not."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


@pytest.mark.usefixtures("no_loop")
def test_vmap_has_a_rule_for_what_is_tagged_pointwise() -> None:
    x, y = torch.randn(2, 3, 3), torch.randn(3, 2)
    torch.testing.assert_close(torch.vmap(torch.gr_negate)(x), -x)
    expected = torch.stack([-x[i].mT for i in range(2)])
    assert torch.equal(torch.vmap(torch.gr_negate_)(x.clone().mT), expected)
    torch.testing.assert_close(torch.vmap(torch.gr_axpy, (0, 1))(x, y), y.T[:, None] + x)
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(lambda x: torch.gr_mix(x, x).sum()))(x), torch.full_like(x, 3)
    )


@pytest.mark.usefixtures("no_loop")
def test_vmap_takes_the_folder_s_own_rules() -> None:
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(torch.vmap(torch.gr_row_sum, 1)(x), x.sum(-1).T)
    torch.testing.assert_close(torch.vmap(lambda x: torch.gr_row_sum(x, 0, True), 1)(x), x.sum(0)[:, None])
    torch.testing.assert_close(torch.vmap(aten.gr_cube, 1, 1)(x), x**3)
    assert re.search(r"FuncTorchBatched: .*GrammarBatching\.cpp", torch._C._dispatch_dump("aten::gr_mix"))


def test_folder_s_python_files_are_in_torch() -> None:
    x = torch.randn(3, 4)
    assert torch.nn.GrGate.__module__ == "torch.nn.modules.gr_gate"
    torch.testing.assert_close(torch.nn.GrGate()(x), torch.nn.functional.gr_gate(x))
    assert importlib.import_module("torch.gr_package").ANSWER == 42
    # The folder's own meta function, in the place of the one that is derived.
    from torch._decomp import meta_table

    assert meta_table[aten.gr_negate.default].__name__ == "meta_gr_negate"


def test_help_says_what_the_folder_does() -> None:
    mix = torch.gr_mix.__doc__
    assert mix.startswith("\ngr_mix(input, other, *, alpha=2, out=None) -> Tensor\n\nAdds :attr:`input`")
    assert Tensor.gr_mix.__doc__ == "\ngr_mix(other, *, alpha=2) -> Tensor\n\nSee :func:`torch.gr_mix`\n"
    assert "gr_center(input, dim=None) -> Tensor\n\nMoves the element" in torch.fft.gr_center.__doc__
    assert "gr_center" in torch.fft.__all__
    # What has no file of its own.
    assert "gr_bump(input) -> Tensor\n\nAn operator that was added" in torch.special.gr_bump.__doc__
    assert "gr_gate(input, weight=None, reduction=1, *, out=None) -> Tensor" in torch.nn.functional.gr_gate.__doc__
    assert "lerp(input, end, weight, *, out=None)" in torch.lerp.__doc__


def test_torch_function_is_asked() -> None:
    class Mine(Tensor):
        called: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.called.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.eye(3).as_subclass(Mine)
    results = [
        torch.gr_mix(x, x),
        x.gr_diag(),
        torch.lerp(x, "half"),
        x + "four",
        torch.linalg.gr_anti_trace(x),
        torch.nn.functional.gr_gate(x),
        torch.gr_sum_list([torch.eye(3), x]),
    ]
    assert all(isinstance(result, Mine) for result in results)
    assert {"gr_mix", "gr_diag", "lerp", "linalg_gr_anti_trace", "gr_gate", "gr_sum_list"} <= set(Mine.called)


def test_overrides_know_the_operators() -> None:
    overrides = torch.overrides.get_testing_overrides()
    missing = [
        function
        for function in (
            torch.gr_mix,
            torch.gr_diag,
            Tensor.gr_swap_,
            torch.linalg.gr_anti_trace,
            Tensor.gr_method_only,
        )
        if function not in overrides
    ]
    assert missing == []


def test_dispatch_mode_sees_the_operators() -> None:
    with Record() as record:
        torch.gr_mix(torch.ones(2), torch.ones(2))
        torch.gr_turn(torch.ones(2, 2))
        torch.gr_factory(2)
        torch.gr_check(torch.ones(1))
    assert {"aten.gr_mix.default", "aten.t.default", "aten.gr_factory.default", "aten.gr_check.default"} <= set(
        record.names
    )


def test_every_operator_of_the_folder_is_registered() -> None:
    text = (Path(__file__).parent / "grammar/native_functions.yaml").read_text()
    names = re.findall(r"^- func: ([^(]+)\(", text, re.M)
    names += [name for line in re.findall(r"^  autogen: (.+)$", text, re.M) for name in line.split(", ")]
    assert len(names) > 130
    assert {f"aten::{name}" for name in names} <= set(torch._C._dispatch_get_all_op_names())


def test_every_new_name_has_a_stub() -> None:
    folder = Path(torch.__file__).parent
    expected = {
        "_C/_VariableFunctions.pyi": ["gr_mix", "gr_extent", "gr_factory", "gr_ints", "gr_strings", "lerp"],
        "_C/__init__.pyi": ["gr_method_only", "gr_mix_", "gr_swap_", "new_gr_filled", "__gr__"],
        "_C/_nn.pyi": ["gr_gate"],
    }
    for file, names in expected.items():
        text = (folder / file).read_text()
        defined = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
        assert set(names) <= defined
    classes = {node.name for node in ast.parse((folder / "return_types.pyi").read_text()).body if hasattr(node, "name")}
    assert {"gr_extent", "gr_three", "gr_take", "gr_moments"} <= classes


CPP = r"""
#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <iostream>

int main() {
  const at::Tensor x = torch::gr_factory({2, 2}, 3, at::TensorOptions().dtype(at::kDouble).requires_grad(true));
  const at::Tensor y = at::gr_mix(x, x, 2).gr_diag();
  y.gr_square().sum().backward();
  const auto [low, high] = at::gr_extent(x);
  at::Tensor out = at::empty({0}, at::kDouble);
  at::gr_row_sum_out(out, x.detach(), 1, true);
  const at::Tensor z = at::gr_defaults(at::zeros({}));
  const bool is_fine = x.grad()[0][0].item<double>() == 54 && x.grad()[0][1].item<double>() == 0 &&
      high.sum().item<double>() == 6 && out.sizes() == at::IntArrayRef({2, 1}) && z.item<int>() == 2 &&
      at::add(z, "four").item<int>() == 6 && torch::gr_full_like(x, 5).sum().item<double>() == 20 &&
      at::cpu::gr_mix(x.detach(), x.detach()).sum().item<double>() == 36;
  std::cout << (is_fine ? "fine" : "wrong");
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_cpp(tmp_path: Path) -> None:
    source, program, library = tmp_path / "program.cpp", tmp_path / "program", Path(torch.__file__).parent / "lib"
    source.write_text(CPP.replace("#include <iostream>", "#include <ATen/CPUFunctions.h>\n#include <iostream>"))
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    command = ["g++", "-std=c++20", "-O0", *includes, str(source), "-o", str(program), f"-L{library}"]
    subprocess.run(
        [*command, "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{library}", "-Wl,--no-as-needed"], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False, env={**os.environ, "PATH": ""})
    assert (done.stdout, done.stderr) == ("fine", "")


# --- code for each CPU capability -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "flag", "told"), [("default", "", 0), ("avx2", "avx2", 2), ("avx512", "avx512f", 512)]
)
def test_the_very_code_compiled_for_a_capability_runs(capability: str, flag: str, told: int) -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    if flag not in next(line for line in lines if line.startswith("flags")).split() and flag:
        pytest.skip(f"this processor has no {flag}")
    program = "import torch; print(torch.ones(1).gr_capability())"
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) == told
