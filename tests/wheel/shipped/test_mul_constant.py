"""mul_constant: self times a number, with torch.mul's type promotion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from samples import COMPLEX, INTEGERS, REAL, assert_exact, check_derivatives, double, layouts, values

DTYPES = [*REAL, *COMPLEX, *INTEGERS, torch.bool, torch.complex32]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (70_001,)]
CONSTANTS = [3, -1, 0, True, 2.5, 300, 1e300, float("inf"), float("nan"), 1 - 2j, 2**63 - 1]


@pytest.mark.parametrize(("shape", "dtype"), list(itertools.product(SHAPES, [*REAL, *COMPLEX, *INTEGERS])))
def test_values(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """NumPy computes half types in float32, rounded once; integers wrap around."""
    x = values(shape, dtype)
    wide = x.float() if dtype in (torch.float16, torch.bfloat16) else x
    expected = torch.from_numpy(np.asarray(wide.numpy() * wide.numpy().dtype.type(3))).to(dtype)
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if dtype.is_complex else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(torch.mul_constant(x, 3), expected, **tolerance)


def makes_bcomplex(constant: complex, dtype: torch.dtype) -> bool:
    """Return whether the product has a dtype that is new in 2.15."""
    promoted = torch.result_type(torch.empty(1, dtype=dtype), constant)
    return promoted == getattr(torch, "bcomplex32", None)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize(("constant", "dtype"), list(itertools.product(CONSTANTS, DTYPES)))
def test_agrees_with_mul(constant: complex, dtype: torch.dtype) -> None:
    """Type promotion, constants that do not fit, infinities and NaN."""
    x = values((5, 7), dtype)
    if makes_bcomplex(constant, dtype):
        pytest.skip("PyTorch 2.15 promotes to complex numbers of bfloat16, which its own mul does not take")
    for argument in (x, x[0, 0], x.t()):
        assert_exact(torch.mul_constant(argument, constant), torch.mul(argument, constant))


@given(
    constant=st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(width=32), st.booleans(), st.complex_numbers()),
    numbers=st.lists(st.floats(width=32), max_size=40),
    dtype=st.sampled_from([*REAL, torch.complex64]),
)
@settings(deadline=None, max_examples=200)
def test_agrees_with_mul_for_any_number(constant: complex, numbers: list[float], dtype: torch.dtype) -> None:
    # torch.mul first rounds the constant to half; here it stays in float.
    assume(not (dtype == torch.float16 and isinstance(constant, complex)))
    assume(not makes_bcomplex(constant, dtype))
    x = torch.tensor(numbers).to(dtype)
    assert_exact(torch.mul_constant(x, constant), torch.mul(x, constant))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.complex64])
def test_layouts(dtype: torch.dtype) -> None:
    for name, x in layouts(values((2, 3, 4, 5), dtype)).items():
        expected = torch.mul(x, 3)
        result = torch.mul_constant(x, 3)
        assert_exact(result, expected)
        assert result.stride() == expected.stride(), name


def test_more_than_the_caches_hold() -> None:
    """Split among threads."""
    numbers = torch.arange(2**22 + 1037)
    x = (numbers % 251).float()
    assert torch.equal(torch.mul_constant(x, 3), (numbers % 251 * 3).float())
    assert torch.equal(x.mul_constant_(3), (numbers % 251 * 3).float())


def test_wider_out() -> None:
    wide = torch.empty(3, dtype=torch.float64)
    torch.mul_constant(torch.ones(3), 0.5, out=wide)
    assert wide.tolist() == [0.5] * 3


def test_sparse_gradient() -> None:
    """An embedding that uses few rows of its table has such a gradient."""
    weight = torch.randn(5, 3, requires_grad=True)
    rows = torch.tensor([1, 3, 3])
    torch.nn.functional.embedding(rows, torch.mul_constant(weight, 2.5), sparse=True).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_sparse
    expected = torch.zeros(5, 3).index_put((rows,), torch.tensor(2.5), accumulate=True)
    assert torch.equal(weight.grad.to_dense(), expected)


def test_errors_in_place() -> None:
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Int"):
        torch.ones(2, dtype=torch.int32).mul_constant_(0.5)
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element of the written-to tensor"):
        torch.ones(1).expand(3).mul_constant_(2)


def test_derivatives_of_a_real_tensor_times_a_complex_number() -> None:
    check_derivatives(lambda x: torch.mul_constant(x, 1 - 2j), double((2, 3)))


def test_constant_may_be_a_size() -> None:
    """A symbolic size where torch.compile traces with dynamic shapes."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.mul_constant(x, 2.5).mul_constant(x.size(0))

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (3, 6):
        x = values((size, 4), torch.float32)
        for function in (f, compiled, torch.jit.script(f)):
            torch.testing.assert_close(function(x), x * 2.5 * size)


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py."""
    for dtype in [*REAL, *INTEGERS, *COMPLEX, torch.complex32, torch.bool]:
        for length in (1, 15, 16, 17, 1000):
            x = values((length,), dtype)
            assert_exact(torch.mul_constant(x, 3), torch.mul(x, 3))
