"""Tensors with more than 2^31 elements, whose indices need 64 bits: ``make test ARGS="-- -m slow"`` runs these tests.

Zeroed memory is allocated only when it is written, so most of these tests need less memory than they request.
"""

from pathlib import Path

import pytest
import torch
from samples import assert_exact, values

pytestmark = pytest.mark.slow

# The tensors are images of 256 x 256, or rows of as many elements.
IMAGES = 2**15 + 1
ELEMENTS = IMAGES * 2**16


@pytest.fixture(autouse=True)
def _memory() -> None:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if int(lines["MemAvailable"].split()[0]) < 10 * 2**20:
        pytest.skip("less than 10 GB of memory are free")


def last_set(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros, except for random values at the end of the first dimension."""
    x = torch.zeros(shape, dtype=dtype)
    x[-1] = values(shape[1:], dtype)
    return x


def test_pointwise() -> None:
    x = last_set((IMAGES, 2**16), torch.int8)
    result = torch.mul_constant(x, 3)
    assert_exact(result[-1], 3 * x[-1])
    assert not result[-2].any()
    del result
    assert x.twice_plus_(torch.ones(1, dtype=torch.int8)) is x
    assert_exact(x[-1], 2 * values((2**16,), torch.int8) + 1)
    assert (x[-2] == 1).all()


def test_gdh() -> None:
    x = last_set((IMAGES, 2**16), torch.int8)
    assert_exact(torch.gdh(x.t())[IMAGES - 1 :: IMAGES], x[-1])


def test_depthwise_conv2d() -> None:
    x = last_set((IMAGES, 1, 256, 256), torch.bfloat16).requires_grad_()
    weight = values((1, 1, 3, 3), torch.bfloat16, 2)
    result = torch.depthwise_conv2d(x, weight, None, 8)
    last = x[-1:].detach().requires_grad_()
    expected = torch.depthwise_conv2d(last, weight, None, 8)
    assert_exact(result[-1:], expected)
    result.sum().backward()
    expected.sum().backward()
    assert x.grad is not None
    assert_exact(x.grad[-1:], last.grad)


def test_roi_pool() -> None:
    x = last_set((IMAGES, 1, 256, 256), torch.float16)
    box = torch.tensor([[IMAGES - 1.0, 10, 20, 200, 250], [0, 10, 20, 200, 250]])
    result = torch.roi_pool(x, box, 1.0, 7, 7)
    assert_exact(result[:1], torch.roi_pool(x[-1:], box[:1] * torch.tensor([0, 1, 1, 1, 1]), 1.0, 7, 7))
    assert not result[1].any()


def test_correlate2d() -> None:
    x, kernel = last_set((IMAGES, 256, 256), torch.int8), values((1, 2), torch.int8, 2)
    result = torch.correlate2d(x, kernel)
    assert_exact(result[-1], torch.correlate2d(x[-1], kernel))
    assert not result[-2].any()


def test_improved_triplet_loss() -> None:
    anchor = last_set((IMAGES, 2**16), torch.bfloat16).requires_grad_()
    positive, negative = (values((2**16,), torch.bfloat16, seed) for seed in (2, 3))
    result = torch.improved_triplet_loss(
        anchor, positive.expand_as(anchor), negative.expand_as(anchor), -1.0, 0.01, 0.5, "none"
    )
    last = anchor[-1].detach().requires_grad_()
    expected = torch.improved_triplet_loss(last, positive, negative, -1.0, 0.01, 0.5, "none")
    assert_exact(result[-1], expected)
    result.sum().backward()
    expected.backward()
    assert anchor.grad is not None
    assert_exact(anchor.grad[-1], last.grad)
