"""Kernels that this folder replaces, on all that calls them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import LAYOUTS, SIZES, laid_out
from reports import INF, NAN
from stubs import check_stubs, same
from torch import Tensor, _graft
from torch._inductor import decomposition
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")

UNSIGNED = {torch.uint16: 16, torch.uint32: 32, torch.uint64: 64}


def test_stubs() -> None:
    check_stubs()


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_stubs_with_capability(capability: str) -> None:
    program = Path(__file__).with_name("stubs.py")
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, program], env=env, check=True)


@pytest.mark.parametrize("function", [torch.fmod, torch.remainder])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_fmod_of_integers_is_pytorchs(dtype: torch.dtype, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    """The processor has no smallest integer modulo -1, and raises a signal."""
    x, y = torch.tensor([torch.iinfo(dtype).min, -7, 7] * 11, dtype=dtype), torch.tensor([-1, 3, -3] * 11, dtype=dtype)
    found = function(x, y)
    with _graft.stock():
        assert torch.equal(found, function(x, y))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(x, torch.zeros_like(y))


@pytest.mark.parametrize("function", [torch.fmod, torch.remainder])
def test_fmod_under_transforms(function) -> None:
    x, y = torch.full((33,), 1e38), torch.full((33,), 1e-3)
    expected = torch.from_numpy(np.fmod(x.double().numpy(), y.double().numpy())).float()
    same(torch.vmap(function)(x, y), expected)
    same(torch.func.vmap(torch.func.grad(function))(x, y), torch.ones(33))
    same(torch.func.functionalize(function)(x, y), expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "bits"), UNSIGNED.items())
def test_unsigned_addition(dtype: torch.dtype, bits: int, layout: str, size: int) -> None:
    """The oracle is Python's integers, which do not overflow."""
    random = np.random.default_rng(size)
    a = (
        random.integers(0, 2**bits, size, dtype=np.uint64, endpoint=False)
        if bits < 64
        else random.integers(0, 2**63, size) * 2
    )
    b = random.integers(0, 2**bits, size, dtype=np.uint64) if bits < 64 else random.integers(0, 2**63, size) * 2 + 1
    number = np.dtype(f"uint{bits}")
    first, second = a.astype(np.uint64).tolist(), b.astype(np.uint64).tolist()
    x = laid_out(torch.from_numpy(np.array(first, dtype=number)), layout)
    y = laid_out(torch.from_numpy(np.array(second, dtype=number)), layout)

    def check(found: torch.Tensor, sign: int, alpha: int = 1) -> None:
        expected = [(i + sign * alpha * j) % 2**bits for i, j in zip(first, second, strict=True)]
        assert found.dtype == dtype
        assert found.flatten().tolist() == expected

    check(x + y, 1)
    check(x - y, -1)
    check(torch.add(x, y, alpha=3), 1, 3)
    check(torch.sub(x, y, alpha=3), -1, 3)
    check(torch.add(x, y, out=torch.empty_like(x)), 1)
    check(x.clone().add_(y), 1)
    check(x.clone().sub_(y), -1)
    check(torch._foreach_add([x], [y])[0], 1)
    check(torch.vmap(torch.add)(x, y), 1)
    assert (x + 1).flatten().tolist() == [(i + 1) % 2**bits for i in first]
    assert (1 - x).flatten().tolist() == [(1 - i) % 2**bits for i in first]


def test_addition_of_other_dtypes_is_pytorchs() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.bool):
        x = torch.arange(33).to(dtype)
        with _graft.stock():
            expected = torch.add(x, x)
        same(torch.add(x, x), expected)
    with pytest.raises(RuntimeError, match="Subtraction, the `-` operator, with two bool tensors"):
        torch.sub(x, x)


@pytest.mark.parametrize("threads", [1, 2])
def test_histc_counts_many(threads: int) -> None:
    """A bin has more than 2^24 elements, from which on float does not count by one. All counts are even."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.full((2**25 + 10,), 0.25)
        x[:1000] = 0.75
        expected = torch.tensor([2**25 + 10 - 1000, 0.0, 1000.0])
        same(torch.histc(x, 3, 0, 0.9), expected)
        same(torch.histc(x, 2), expected[[0, 2]])  # its range is that of the input
        same(torch.histc(x.expand(1, -1), 2, out=torch.empty(0)), expected[[0, 2]])
        x[0] = NAN
        with pytest.raises(RuntimeError, match="is not finite"):
            torch.histc(x, 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histc_counts_few(dtype: torch.dtype, size: int) -> None:
    x = torch.linspace(-1, 2, size, dtype=dtype)
    for layout in LAYOUTS:
        expected = np.histogram(x.numpy(), 7, (-0.95, 1.95))[0]
        same(torch.histc(laid_out(x, layout), 7, -0.95, 1.95), torch.from_numpy(expected).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("columns", SIZES)
def test_csr_reductions(columns: int, dtype: torch.dtype) -> None:
    for matrix in (torch.zeros(3, columns, dtype=dtype), torch.eye(3, columns, dtype=dtype)):
        csr = matrix.to_sparse_csr()
        for found in (csr.sum(dim=(0, 1), keepdim=True), torch._sparse_csr_prod(csr, (0, 1), True)):
            torch._validate_sparse_csr_tensor_args(
                found.crow_indices(), found.col_indices(), found.values(), found.shape
            )
            assert found.to_sparse_coo().shape == (1, 1)
        same(csr.sum(dim=(0, 1), keepdim=True).to_dense(), matrix.sum(dim=(0, 1), keepdim=True))
        same(csr.sum(dim=0, keepdim=True).to_dense(), matrix.sum(dim=0, keepdim=True))
        same(csr.sum(dim=(0, 1), keepdim=True, dtype=torch.float64).to_dense(), matrix.double().sum().reshape(1, 1))


@pytest.mark.parametrize("size", [1, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_addmm_ignores_what_is_multiplied_by_zero(dtype: torch.dtype, size: int) -> None:
    """With the batching rule, where any of the arguments has the batch, and with Inductor's decomposition."""
    nothing, some = torch.full((2, size), NAN, dtype=dtype), torch.ones(2, size, dtype=dtype)
    a, b = torch.ones(2, 1, 4, dtype=dtype), torch.ones(2, 4, size, dtype=dtype)

    def vmapped(dims: tuple[int | None, ...], x, a, b, **factors: float) -> torch.Tensor:
        chosen = [each if dim == 0 else each[0] for each, dim in zip((x, a, b), dims, strict=True)]
        return torch.vmap(lambda x, a, b: torch.addmm(x, a, b, **factors), dims)(*chosen)

    for dims in ((0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)):
        same(vmapped(dims, nothing, a, b, beta=0), torch.full((2, 1, size), 4.0, dtype=dtype))
        same(vmapped(dims, some, a * INF, b, alpha=0, beta=2), torch.full((2, 1, size), 2.0, dtype=dtype))
        same(vmapped(dims, nothing, a * INF, b, alpha=0, beta=0), torch.zeros(2, 1, size, dtype=dtype))
        same(vmapped(dims, some, a, b, alpha=3, beta=2), torch.full((2, 1, size), 14.0, dtype=dtype))

    def decomposed(*arguments, **factors: float) -> torch.Tensor:
        table = decomposition.decompositions
        return make_fx(lambda *each: torch.addmm(*each, **factors), table)(*arguments)(*arguments)

    same(decomposed(nothing[0], a[0], b[0], beta=0), torch.full((1, size), 4.0, dtype=dtype))
    if dtype != torch.bfloat16:  # oneDNN's addmm, which is called, multiplies by alpha
        same(decomposed(some[0], a[0] * INF, b[0], alpha=0), torch.ones(1, size, dtype=dtype))
    same(decomposed(some[0], a[0], b[0], alpha=3, beta=2), torch.full((1, size), 14.0, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_sparse_dimensions_are_broadcast(dtype: torch.dtype) -> None:
    """Also of a hybrid tensor, one that is not coalesced, with fewer dimensions, and in place."""
    for shape, sparse_dim, other in (
        ((2, 1), 2, (2, 3)),
        ((1, 3), 2, (4, 1)),
        ((2, 2, 1), 3, (1, 1, 3)),
        ((1, 3), 1, (4, 3)),
        ((1, 3), 2, (2, 4, 3)),
        ((4, 3), 2, (1, 3)),
        ((1,), 1, (1, 0)),
        ((2, 1), 2, (2, 0)),
        ((1, 3), 2, (0, 3)),
        ((1, 3), 2, ()),
    ):
        dense = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype)
        factor = torch.arange(2, 2 + torch.Size(other).numel()).reshape(other).to(dtype)
        sparse = dense.to_sparse(sparse_dim)
        twice = torch.sparse_coo_tensor(
            torch.cat([sparse.indices()] * 2, 1), torch.cat([sparse.values() / 2] * 2), shape, check_invariants=True
        )
        for each in (sparse, twice):
            same((each * factor).to_dense(), dense * factor)
            same((factor * each).to_dense(), dense * factor)
    x = torch.ones(2, 1, requires_grad=True)
    (x.to_sparse() * torch.ones(2, 3)).to_dense().sum().backward()
    same(x.grad, torch.full((2, 1), 3.0))
