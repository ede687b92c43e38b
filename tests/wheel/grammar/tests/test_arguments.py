"""Every type of argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import NONE, aten, check_gradients, real
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

X = torch.ones(1)


def test_optional_tensors() -> None:
    x, y, z = real(3), real(3), real(3)
    assert_close(torch.gr_maybe_add(x), x)
    assert_close(x.gr_maybe_add(third=z), x + 2 * z)
    check_gradients(lambda x, y: torch.gr_maybe_add(x, y), x, y)
    check_gradients(lambda x, z: torch.gr_maybe_add(x, None, z), x, z)
    check_gradients(torch.gr_maybe_add, x, y, z)


def test_lists() -> None:
    x, y, one = real(3), real(3), torch.ones(3, dtype=torch.double)
    assert_close(torch.gr_sum_list([x, y, x], scale=2), 2 * (x + y + x))
    check_gradients(lambda *xs: torch.gr_sum_list(list(xs), scale=2), x, y, real(3), forward=False)
    assert_close(x.gr_sum_some([one, one]), x + 2)
    assert_close(aten.gr_sum_some(x, [None, one]), x + 1)
    assert_close(torch.gr_sum_some(x, []), x)
    check_gradients(lambda x: x.gr_sum_some([one]), x)
    assert torch.gr_pair([torch.tensor(5), torch.tensor(2)]) == 3
    assert_close(torch.gr_poly(x, [1, 2.5, 3]), 1 + 2.5 * x + 3 * x * x)
    check_gradients(lambda x: torch.gr_poly(x, [1, 2.5, -3, 0.5]), x)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: torch.gr_sum_list(X), "tuple of Tensors"),
        (lambda: X.gr_sum_some([None, X]), "NoneType"),  # Python's argument parser, as for upstream's index_put
        (lambda: torch.gr_pair([X] * 3), "tuple of 2 elements"),
        (lambda: torch.gr_ints(X, 1.5), "int"),
        (lambda: torch.gr_ints(X, 1, 2, [3, 4], [5], [6], 7, 8, [9], [10], 2), "positional"),
        (lambda: torch.gr_factory("3"), "gr_factory"),
    ],
)
def test_arguments_of_another_type_or_number_are_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


# Python's argument parser reads the default `Mean` of a reduction as 0, also upstream; the schema says 1.
INTS = [3, NONE, 1, 1, NONE, 4, 5, 6, NONE, NONE]
# Kernels that write what they are given, NONE for None.
READ: dict[str, tuple[Callable[[], Tensor], list[Any]]] = {
    "defaults of the schema": (lambda: aten.gr_ints(X), [*INTS, 1, NONE]),
    "defaults in Python": (lambda: torch.gr_ints(X), [*INTS, 0, NONE]),
    "integers": (
        lambda: torch.gr_ints(X, 30, 31, [32, 33], [34], [35, 36, 37], 38, 39, [40, 41], (42, 43), reduction=2, pair=7),
        [*range(30, 44), 2, 7, 7],
    ),
    "integers by name": (
        lambda: torch.gr_ints(X, c=8, e=(), g=9, reduction=1),
        [3, NONE, 8, 8, NONE, 6, 9, NONE, 1, NONE],
    ),
    "defaults of numbers": (lambda: torch.gr_floats(X), [0.5, NONE, 1e-05, 2.5, NONE]),
    "numbers": (lambda: torch.gr_floats(X, 1, 2, [3, 4.5], 5, 6, f=7.5), [1, 2, 3, 4.5, 5, 6, 7.5]),
    "defaults of booleans": (lambda: torch.gr_bools(X), [1, 0, NONE]),
    "booleans": (lambda: torch.gr_bools(X, False, b=True, c=False), [0, 1, 0]),
    "defaults of strings": (lambda: torch.gr_strings(X), [*b"\"'\\", NONE, *b"sum"]),
    "strings of bytes": (
        lambda: torch.gr_strings(X, "é", "", c="x\0y"),
        [*np.frombuffer("é".encode(), np.int8), *b"x\0y"],
    ),
    "strings": (lambda: torch.gr_strings(X, "a", b="bc", c=""), [*b"abc"]),
    "a dtype": (lambda: torch.gr_kinds(X, dtype=torch.long), [4, NONE, NONE, NONE, NONE, 0]),
    "kinds of tensors": (
        lambda: torch.gr_kinds(
            X,
            dtype=torch.half,
            other=torch.double,
            layout=torch.sparse_coo,
            device="meta",
            pin_memory=True,
            memory_format=torch.channels_last,
        ),
        [5, 7, 1, 14, 1, 2],
    ),
    "symbolic sizes": (lambda: torch.gr_lengths(X.expand(2)), [[11] * 4] * 3),
    "symbolic sizes by name": (lambda: torch.gr_lengths(X.expand(2), stride=[2, 3], size=[1, 2]), [[32, 32]]),
}


@pytest.mark.parametrize("name", READ)
def test_values_and_defaults_reach_the_kernel(name: str) -> None:
    call, expected = READ[name]
    assert call().tolist() == expected


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


def described(x: Tensor) -> tuple[Any, ...]:
    return x.tolist(), x.dtype, x.requires_grad


def test_factories() -> None:
    assert described(torch.gr_factory(3)) == ([1, 1, 1], torch.float, False)
    assert described(torch.gr_factory((2, 1), value=4, dtype=torch.long, device="cpu")) == (
        [[4], [4]],
        torch.long,
        False,
    )
    assert torch.gr_factory(2, 3).shape == (2, 3)
    assert torch.gr_factory(2, requires_grad=True).requires_grad
    assert torch.gr_factory([2], device="meta").is_meta
    with torch.device("meta"):
        assert torch.gr_factory(2).is_meta
    try:
        torch.set_default_dtype(torch.double)
        assert torch.gr_factory(2).dtype == torch.double
    finally:
        torch.set_default_dtype(torch.float)
    x = torch.ones(1, dtype=torch.half)
    assert described(x.new_gr_filled((2,), 3)) == ([3, 3], torch.half, False)
    assert described(x.new_gr_filled([2], 3, dtype=torch.int, requires_grad=False)) == ([3, 3], torch.int, False)
    assert described(torch.gr_made_from(torch.arange(3), dtype=torch.double)) == ([0, 1, 2], torch.double, False)
    assert torch.gr_made_from(torch.arange(3), requires_grad=False).dtype == torch.float


def test_factory_like() -> None:
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.gr_full_like(x, 7)
    assert (y.shape, y.stride(), y.unique().tolist()) == (x.shape, x.stride(), [7])
    assert torch.gr_full_like(x, 7, memory_format=torch.contiguous_format).is_contiguous()
    assert torch.gr_full_like(x, 2, dtype=torch.int, device="meta").dtype == torch.int
    assert torch.gr_full_like(x, 2, requires_grad=True).requires_grad
    assert not torch.gr_full_like(real(2), 2).requires_grad


def test_symbolic_sizes_reach_a_kernel_that_takes_them() -> None:
    graph = make_fx(lambda x: torch.gr_window(x, 1, x.shape[0] - 2) * 2, tracing_mode="symbolic")(torch.ones(7))
    assert_close(graph(torch.arange(5.0)), torch.tensor([2.0, 4.0, 6.0]))
    graph = make_fx(lambda x: torch.gr_lengths(x, size=(x.shape[0], 2)), tracing_mode="symbolic")(torch.ones(7))
    assert graph(torch.ones(3)).shape == (3, 2)


def test_operators_without_tensors() -> None:
    assert torch.gr_start(3) is None
    assert torch.gr_started() == aten.gr_started() == 3
    assert torch.gr_restart() is None
    assert torch.gr_started() == 1
    assert torch.gr_is_word("word") is True
    assert torch.gr_is_word("two words") is False
    assert torch.gr_steps(4).tolist() == [0, 1, 2, 3]
    assert torch.gr_steps_composed().tolist() == [0, 1, 2]


def _started(call: Callable[[], object]) -> int:
    torch.gr_start(0)
    call()
    return torch.gr_started()


def test_calls_reach_the_kernel_in_transforms() -> None:
    x = torch.ones(2, 3)
    assert _started(lambda: torch.vmap(lambda x: (torch.gr_restart(), x)[1])(x)) == 1
    assert _started(lambda: torch.func.grad(lambda x: (torch.gr_start(4), x.sum())[1])(x)) == 4
    with torch.inference_mode():
        assert _started(torch.gr_restart) == 1
    with torch.device("meta"):
        assert _started(torch.gr_restart) == 1


def test_fake_tensors_made_without_tensors() -> None:
    with FakeTensorMode():
        for made in (torch.gr_steps(3), torch.gr_steps_composed()):
            assert (type(made).__name__, made.shape, made.device.type) == ("FakeTensor", (3,), "cpu")
