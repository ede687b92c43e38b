"""twice_plus: 2 * self + other, elementwise."""

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from samples import COMPLEX, INTEGERS, REAL, assert_exact, check_derivatives, double, values
from torch import Tensor
from vmaps import check_vmap

# Lengths around the widths of vectors, and one that is split among threads.
SHAPES = [
    ((), ()),
    ((0,), (0,)),
    ((1,), (1,)),
    ((7,), (7,)),
    ((33,), (33,)),
    ((3, 1), (1, 5)),
    ((2, 3), ()),
    ((70_001,), (70_001,)),
]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute it in NumPy: half types in float32, rounded once; integers wrap around."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    a, b = x.to(wide).numpy(), y.to(wide).numpy()
    return torch.from_numpy(np.asarray(a + a + b)).to(dtype)


@pytest.mark.parametrize(("shapes", "dtype"), list(itertools.product(SHAPES, REAL + COMPLEX + INTEGERS)))
def test_values(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype) -> None:
    x, y = values(shapes[0], dtype, 1), values(shapes[1], dtype, 2)
    assert_exact(torch.twice_plus(x, y), reference(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_strided_inputs(dtype: torch.dtype) -> None:
    x, y = values((6, 8), dtype, 1).t()[::2], values((8, 6), dtype, 2)[1::2]
    assert_exact(torch.twice_plus(x, y), reference(x.contiguous(), y.contiguous()))
    image = values((2, 3, 4, 5), dtype).to(memory_format=torch.channels_last)
    assert torch.twice_plus(image, image).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.ones(3), torch.ones(3, dtype=torch.float64)),
        (torch.ones(3, dtype=torch.int32), torch.ones(3)),
        (torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.int8)),
        (torch.ones(3), torch.ones(3, dtype=torch.complex64)),
        (torch.ones(3, dtype=torch.float16), torch.tensor(1.0, dtype=torch.float64)),
        (torch.ones(3, dtype=torch.float16), torch.ones(3, dtype=torch.bfloat16)),
    ],
)
def test_type_promotion_is_that_of_add(x: torch.Tensor, y: torch.Tensor) -> None:
    result = torch.twice_plus(x, y)
    assert result.dtype == torch.add(x, y).dtype
    assert result.tolist() == [3] * 3


def test_in_place() -> None:
    x = torch.ones(2, 3)
    x.twice_plus_(x)
    assert x.tolist() == [[3, 3, 3]] * 2
    with pytest.raises(RuntimeError, match=r"output with shape \[1\] doesn't match the broadcast shape \[3\]"):
        torch.ones(1).twice_plus_(torch.ones(3))


def test_special_values() -> None:
    inf, nan = math.inf, math.nan
    x, y = torch.tensor([inf, -inf, inf, nan, 0, 3e38]), torch.tensor([1, 1, -inf, 1, nan, 0])
    assert_exact(torch.twice_plus(x, y), torch.tensor([inf, -inf, nan, nan, nan, inf]))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("count", [1, 33, 70])
@pytest.mark.parametrize(
    ("dtype", "x", "y"), [(torch.half, 4e4, -4e4), (torch.complex32, complex(40000, -60000), complex(-60000, 60000))]
)
def test_half_rounds_once(dtype: torch.dtype, x: complex, y: complex, count: int) -> None:
    """2x alone overflows, but the sum does not, in vectors and in the remainder."""
    result = torch.twice_plus(torch.full((count,), x, dtype=dtype), torch.full((count,), y, dtype=dtype))
    assert result.tolist() == torch.full((count,), 2 * x + y, dtype=dtype).tolist()


def test_operands_may_be_on_two_devices() -> None:
    """The schema's device check is off, so TensorIterator decides, and accepts a number from the CPU."""
    entries = yaml.safe_load((Path(os.environ["GRAFT_NATIVE"]) / "native_functions.yaml").read_text())
    forms = [entry for entry in entries if entry["func"].startswith("twice_plus")]
    assert [entry.get("device_check") for entry in forms] == ["NoCheck"] * 3
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU to try it on")
    x, number = torch.ones(3, device="cuda"), torch.tensor(5.0)
    assert torch.twice_plus(x, number).tolist() == [7] * 3
    assert torch.twice_plus(number, x).tolist() == [11] * 3
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.twice_plus(x, torch.ones(3))


@pytest.mark.parametrize("dtypes", [(torch.float64, torch.complex128), (torch.complex128, torch.float64)])
def test_derivatives_of_a_real_and_a_complex_tensor(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = double((2, 1), dtypes[0], 1), double((1, 3), dtypes[1], 2)
    check_derivatives(torch.twice_plus, x, y)
    assert torch.twice_plus(x, y).grad_fn.name() == "TwicePlusBackward0"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_more_than_the_caches_hold(dtype: torch.dtype) -> None:
    """The work is split among threads, also for a result that is not aligned."""
    size = 2**25 // (3 * dtype.itemsize) + 1037
    numbers = torch.arange(size + 1)
    x, y = (numbers % 251).to(dtype), (numbers % 127).to(dtype)
    expected = (2 * (numbers % 251) + numbers % 127).to(dtype)
    assert torch.equal(torch.twice_plus(x, y), expected)
    result = torch.zeros_like(x)
    torch.twice_plus(x[:-1], y[:-1], out=result[1:])
    assert result[0] == 0
    assert torch.equal(result[1:], expected[:-1])
    assert torch.equal(x.twice_plus_(y), expected)


def batched(shape: tuple[int, ...], dtype: torch.dtype, dim: int | None) -> Tensor:
    """Return a tensor of ``shape`` for each of four samples, along ``dim``; one for all of them if it is None."""
    if dim is None:
        return torch.testing.make_tensor(shape, dtype=dtype, device="cpu")
    return torch.testing.make_tensor((4, *shape), dtype=dtype, device="cpu").movedim(0, dim)


@pytest.mark.usefixtures("no_loop")
@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (-1, 0), (0, -1)], ids=str)
def test_vmap_is_the_loop(dims: tuple[int | None, ...]) -> None:
    """The batching rule is derived from the tag: for shapes that broadcast, types that promote, and in place."""
    for shapes in (((), ()), ((3,), ()), ((), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((0,), (1,))):
        for dtypes in itertools.product([torch.float32, torch.float64, torch.int64, torch.complex64], repeat=2):
            check_vmap(torch.twice_plus, *map(batched, shapes, dtypes, dims), in_dims=dims)
    for shapes in (((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 3), (2, 1))) if dims[0] is not None else ():
        args = tuple(batched(shape, torch.float64, dim) for shape, dim in zip(shapes, dims, strict=True))
        expected = torch.vmap(torch.twice_plus, dims)(*args)
        assert torch.equal(torch.vmap(Tensor.twice_plus_, dims)(*args), expected)
        assert torch.equal(args[0].movedim(dims[0], 0), expected)


@pytest.mark.usefixtures("no_loop")
def test_vmap_is_nested_and_refuses_to_write_many_samples_into_one() -> None:
    check_vmap(torch.vmap(torch.twice_plus), torch.randn(4, 5, 3), torch.randn(5, 4), in_dims=(1, 0))
    with pytest.raises(RuntimeError, match=r"twice_plus_.*vmap"):
        torch.vmap(Tensor.twice_plus_, (None, 0))(torch.zeros(3), torch.ones(4, 3))
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.vmap(Tensor.twice_plus_)(torch.zeros(4, 1), torch.ones(4, 3))


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py; grammar/tests shows that the code compiled for a capability runs."""
    x, y = torch.arange(1000.0), torch.ones(1000)
    assert torch.equal(torch.twice_plus(x, y), torch.arange(1.0, 2001.0, 2.0))
