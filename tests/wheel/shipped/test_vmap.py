"""``torch.vmap`` and ``torch.func`` on the shipped pointwise operator: the batching rule is derived from its tag."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from vmaps import check_vmap

pytestmark = pytest.mark.usefixtures("no_loop")

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((3,), ()),
    ((), (3,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1), (1, 3)),
    ((0,), (1,)),
]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.complex64]
IN_DIMS = [(0, None), (None, 0), (0, 0), (-1, 0), (0, -1)]


def batched(shape: tuple[int, ...], dtype: torch.dtype, dim: int | None, size: int = 4) -> Tensor:
    """Return a tensor of ``shape`` for each of ``size`` samples, along ``dim``; one for all of them if it is None."""
    if dim is None:
        return torch.testing.make_tensor(shape, dtype=dtype, device="cpu")
    return torch.testing.make_tensor((size, *shape), dtype=dtype, device="cpu").movedim(0, dim)


@pytest.mark.parametrize("dims", IN_DIMS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_vmap_is_the_loop(shapes: tuple[tuple[int, ...], tuple[int, ...]], dims: tuple[int | None, ...]) -> None:
    for dtypes in itertools.product(DTYPES, repeat=2):
        check_vmap(torch.twice_plus, *map(batched, shapes, dtypes, dims), in_dims=dims)


@pytest.mark.parametrize("dims", [(0, None), (0, 0), (-1, 0), (0, -1)], ids=str)
def test_vmap_of_the_in_place_form_writes_to_self(dims: tuple[int | None, ...]) -> None:
    for shapes in [((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 3), (2, 1))]:
        args = tuple(batched(shape, torch.float64, dim) for shape, dim in zip(shapes, dims, strict=True))
        expected = torch.vmap(torch.twice_plus, dims)(*args)
        result = torch.vmap(Tensor.twice_plus_, dims)(*args)
        assert torch.equal(result, expected)
        assert torch.equal(args[0].movedim(dims[0] or 0, 0), expected)


def test_vmap_refuses_to_write_many_samples_into_one() -> None:
    with pytest.raises(RuntimeError, match=r"twice_plus_.*vmap"):
        torch.vmap(Tensor.twice_plus_, (None, 0))(torch.zeros(3), torch.ones(4, 3))
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.vmap(Tensor.twice_plus_)(torch.zeros(4, 1), torch.ones(4, 3))


def test_vmap_is_nested() -> None:
    check_vmap(torch.vmap(torch.twice_plus), torch.randn(4, 5, 3), torch.randn(5, 4), in_dims=(1, 0))


def test_transforms_compose() -> None:
    x, y = torch.randn(4, 3, dtype=torch.double), torch.randn(3, dtype=torch.double)

    def ours(x: Tensor) -> Tensor:
        return (torch.twice_plus(x, y) ** 3).sum()

    def theirs(x: Tensor) -> Tensor:
        return ((2 * x + y) ** 3).sum()

    def jvp(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        return lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))

    transforms = [torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian, jvp]
    for transform in transforms:
        torch.testing.assert_close(torch.vmap(transform(ours))(x), torch.vmap(transform(theirs))(x))
