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
KERNELS = {"rows": "depthwise_conv2d_rows_kernel", "pixels": "depthwise_conv2d_pixels_kernel"}


def expected(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Compute in double, and round."""
    x, weight, bias = (each.double() for each in (x, weight, bias))
    return F.conv2d(x, weight, bias, stride, weight.shape[-1] // 2, groups=len(weight))


@pytest.mark.parametrize("dtype", [torch.float, torch.half, torch.bfloat16])
@pytest.mark.parametrize("size, stride", [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (7, 2)])
def test_stencils_compute_what_conv2d_does(size: int, stride: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(size * stride)
    for layout, channels, width in itertools.product(("rows", "pixels"), CHANNELS, WIDTHS):
        shape = (2, channels, 5 if width > 1 else 1, width)
        x = torch.randn(shape, generator=generator).to(dtype)
        weight = torch.randn((channels, 1, size, size), generator=generator).to(dtype)
        bias = torch.randn(channels, generator=generator).to(dtype)
        if layout == "pixels":
            x = x.contiguous(memory_format=torch.channels_last)
        x.requires_grad_()
        before = launches(KERNELS[layout])
        found = torch.depthwise_conv2d(x, weight, bias, stride, size // 2)
        is_there = layout == "rows" or (channels % 8 == 0 and width > 1)
        assert launches(KERNELS[layout]) - before == is_there, (layout, channels, width)
        reference = x.detach().double().requires_grad_()
        wanted = expected(reference, weight, bias, stride)
        torch.testing.assert_close(found, wanted.to(dtype))
        grad = torch.randn(found.shape, generator=generator).to(found)
        grad = grad.contiguous(memory_format=torch.channels_last) if layout == "pixels" else grad
        (grad_x,) = torch.autograd.grad(found, x, grad)
        (wanted_x,) = torch.autograd.grad(wanted, reference, grad.double())
        torch.testing.assert_close(grad_x, wanted_x.to(dtype))
        assert launches(KERNELS[layout]) - before == is_there * (2 if stride == 1 else 1), (layout, channels, width)
