"""Structured kernels and ufuncs."""

import itertools

import pytest
import torch
from support import check_gradients, real


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


def test_kernels_are_there_for_the_devices_of_the_wheel() -> None:
    for operator, key in itertools.product(("gr_mix.out", "gr_backend"), ("CUDA", "MPS")):
        is_there = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", key)
        assert is_there == (key == "CUDA" and torch.version.cuda is not None)
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::gr_cuda_only", "CUDA") == bool(torch.version.cuda)
    with pytest.raises(NotImplementedError, match="gr_cuda_only"):
        torch.gr_cuda_only(torch.ones(2))


def test_structured_without_an_iterator_passes_precomputed_values() -> None:
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
