"""Every type of argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import NONE, aten, check_gradients, real
from torch.fx.experimental.proxy_tensor import make_fx


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
    with pytest.raises(TypeError, match="NoneType"):  # Python's argument parser, as for upstream's index_put
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
    # Python's argument parser reads the default `Mean` of a reduction as 0, also upstream; the schema says 1.
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
