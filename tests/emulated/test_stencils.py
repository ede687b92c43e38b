"""The stencils of depthwise_conv2d on CUDA: each size, vector width and border, compared with conv2d."""

from __future__ import annotations

import itertools

import pytest
import torch
from emulated_cuda import launches
from torch import Tensor
from torch.nn import functional as F

# Of images: rows of whole vectors and others; the smallest of each.
WIDTHS = (1, 4, 6, 8, 13, 16)
# Channels in channels_last: whole vectors of each dtype, in one block and in several; the last are no vectors.
CHANNELS = (8, 24, 136, 9)
DTYPES = (torch.float, torch.half, torch.bfloat16)
ROWS, PIXELS = "depthwise_conv2d_rows_kernel", "depthwise_conv2d_pixels_kernel"
FORMATS = {ROWS: torch.contiguous_format, PIXELS: torch.channels_last}


def random(shape: tuple[int, ...], dtype: torch.dtype, layout: str = ROWS, offset: int = 0) -> Tensor:
    """Return a tensor that begins ``offset`` elements after a vector."""
    dense = torch.randn(shape).to(dtype, memory_format=FORMATS[layout])
    place = torch.empty(dense.numel() + offset, dtype=dtype)[offset:].as_strided(shape, dense.stride())
    return place.copy_(dense)


def compare(layout: str, shape: tuple[int, ...], size: int, stride: int, dtype: torch.dtype, offset: int = 0) -> int:
    """Compare the result and the gradient of the images with those of doubles. Return how many stencils ran."""
    before = launches(layout)
    x = random(shape, dtype, layout, offset).requires_grad_()
    weight, bias = random((shape[1], 1, size, size), dtype), random(shape[1:2], dtype)
    found = torch.depthwise_conv2d(x, weight, bias, stride, size // 2)
    reference = x.detach().double().requires_grad_()
    wanted = F.conv2d(reference, weight.double(), bias.double(), stride, size // 2, groups=shape[1])
    torch.testing.assert_close(found, wanted.to(dtype))
    grad = random(tuple(found.shape), dtype, layout, offset)
    (grad_x,) = torch.autograd.grad(found, x, grad)
    (wanted_x,) = torch.autograd.grad(wanted, reference, grad.double())
    torch.testing.assert_close(grad_x, wanted_x.to(dtype))
    return launches(layout) - before


@pytest.mark.parametrize("size, stride", [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (7, 2)])
def test_stencils_compute_what_conv2d_does(size: int, stride: int) -> None:
    torch.manual_seed(size * stride)
    steps = 2 if stride == 1 else 1  # with a gradient
    for layout, channels, width, dtype in itertools.product(FORMATS, CHANNELS, WIDTHS, DTYPES):
        is_there = layout == ROWS or (channels % 8 == 0 and width > 1)
        launched = compare(layout, (2, channels, 5 if width > 1 else 1, width), size, stride, dtype)
        assert launched == is_there * steps, (layout, channels, width, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_images_that_are_not_aligned(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    assert compare(ROWS, (2, 8, 4, 8), 3, 1, dtype, offset=1) == 2  # with single elements
    assert compare(PIXELS, (2, 8, 4, 8), 3, 1, dtype, offset=1) == 0


def test_more_pixels_than_threads() -> None:
    torch.manual_seed(1)
    assert compare(PIXELS, (2, 136, 64, 64), 3, 1, torch.half) == 2
