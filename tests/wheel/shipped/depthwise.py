"""Helpers for the tests of depthwise_conv2d: convolutions, and their values and gradients in double."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FORMATS = [torch.contiguous_format, torch.channels_last]
backward = torch.ops.aten.depthwise_conv2d_backward


@dataclass(frozen=True)
class Case:
    """A convolution: pairs are height and width."""

    batch: int | None
    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    multiplier: int = 1

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return self.stride, self.padding, self.dilation

    def inputs(self, dtype: torch.dtype, memory_format: torch.memory_format, seed: int = 0) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        outputs = self.channels * self.multiplier
        leading = () if self.batch is None else (self.batch,)
        shapes = [(*leading, self.channels, *self.size), (outputs, 1, *self.kernel), (outputs,)]
        x, weight, bias = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
        return [x if self.batch is None else x.to(memory_format=memory_format), weight, bias]


# Small versions of the layers in networks, and sizes around a vector's width, a block of rows, a stride.
CASES = [
    Case(1, 1, (1, 1), (1, 1)),
    Case(2, 3, (9, 8), (3, 3), padding=(1, 1)),
    Case(1, 17, (14, 14), (5, 5), padding=(2, 2)),
    Case(2, 32, (14, 15), (5, 5), (2, 2), (2, 2)),
    Case(1, 33, (7, 7), (7, 7), padding=(3, 3)),
    Case(1, 40, (28, 31), (7, 7), padding=(3, 3)),
    Case(1, 48, (16, 16), (3, 3), (2, 2), (1, 1)),
    Case(3, 5, (13, 47), (3, 3), (2, 1), (0, 2)),
    Case(2, 33, (37, 40), (9, 2), (2, 2), (4, 0)),
    Case(1, 5, (31, 70), (8, 4), (2, 2), (3, 2), multiplier=2),
    Case(1, 2, (70, 66), (3, 3), (1, 1), (1, 1)),
    Case(1, 4, (12, 20), (3, 5), (1, 1), (2, 4), (2, 2)),
    Case(1, 5, (10, 10), (2, 2), (2, 2), (1, 1)),
    Case(1, 32, (5, 64), (3, 31), padding=(1, 15)),
    Case(1, 4, (20, 21), (3, 3), (2, 3), (3, 2), (3, 2)),
    Case(2, 6, (9, 10), (3, 3), padding=(1, 1), multiplier=3),
    Case(1, 20, (9, 10), (4, 2), (2, 2), (1, 1), (1, 2), multiplier=2),
    Case(None, 8, (10, 11), (3, 3), padding=(1, 1)),
    Case(1, 3, (24, 25), (11, 13), padding=(5, 6)),
    Case(1, 3, (8, 9), (3, 3), padding=(5, 7)),
    Case(1, 3, (9, 9), (2, 2), (5, 4)),
    Case(1, 2, (40, 3), (3, 3), padding=(1, 1)),
    Case(1, 2, (5, 6), (5, 6)),
    Case(2, 2, (300, 40), (3, 3), padding=(1, 1)),
    # Planes in strips.
    Case(1, 2, (61, 700), (3, 3), (2, 2), (1, 1)),
    Case(1, 1, (97, 1500), (9, 2), (2, 1), (4, 0)),
    # Fewer channels than a vector has lanes, computed along the rows.
    Case(2, 3, (60, 70), (3, 3), padding=(1, 1)),
    Case(1, 12, (30, 40), (5, 4), padding=(2, 0)),
    Case(None, 7, (41, 40), (3, 3), padding=(2, 1)),
    Case(2, 3, (30, 25), (4, 3), padding=(5, 7), dilation=(2, 3)),
    Case(1, 2, (3, 90), (3, 2), padding=(1, 0)),
    Case(1, 1, (200, 300), (5, 5), padding=(1, 2)),
    # One output, whose elements are not adjacent.
    Case(2, 32, (35, 3), (3, 2), (1, 2), dilation=(1, 2)),
    Case(2, 32, (6, 40), (3, 2), (1, 40), dilation=(1, 2)),
]

# Larger than a core's cache, and larger than all caches, processed row by row; with pixels that have their own cache
# lines, which AVX512 streams, and pixels that share them.
LARGE = [
    Case(20, 64, (28, 31), (3, 3), padding=(1, 1)),
    Case(50, 40, (28, 31), (5, 5), (1, 2), (2, 2)),
    Case(9, 72, (70, 66), (3, 3), padding=(1, 1)),
    Case(11, 96, (70, 66), (5, 9), (2, 2), (2, 4)),
    Case(12, 64, (70, 66), (3, 9), padding=(1, 4)),
    Case(5, 48, (70, 75), (3, 3), padding=(2, 2), dilation=(2, 2), multiplier=3),
    Case(1, 16, (512, 513), (9, 2), padding=(4, 0)),
]


def convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, case: Case) -> torch.Tensor:
    return F.conv2d(x, weight, bias, *case.parameters, groups=case.channels)


def assert_rounded(ours: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor, terms: int) -> None:
    """Check that a sum of terms in float (in double for double) was rounded once to the result's dtype.

    Args:
        exact: the result in double.
        magnitude: the sum of the terms' magnitudes.
        terms: the number of terms.
    """
    accumulated = torch.float64 if ours.dtype == torch.float64 else torch.float32
    bound = exact.abs() * torch.finfo(ours.dtype).eps / 2 + torch.finfo(ours.dtype).smallest_normal
    bound = bound + magnitude * torch.finfo(accumulated).eps * (terms + 2)
    excess = ((ours.double() - exact).abs() - bound).max() if ours.numel() else torch.zeros(())
    assert excess <= 0, f"{excess} beyond the bound"


def check(case: Case, dtype: torch.dtype, memory_format: torch.memory_format, has_bias: bool = True) -> None:
    """Check the value and the gradients of one convolution."""
    inputs = case.inputs(dtype, memory_format)[: 3 if has_bias else 2]
    ours = [tensor.clone().requires_grad_() for tensor in inputs]
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    sizes = [tensor.double().abs().requires_grad_() for tensor in inputs]
    results = [
        torch.depthwise_conv2d(*ours, *([] if has_bias else [None]), *case.parameters),
        *(convolution(t[0], t[1], t[2] if has_bias else None, case) for t in (exact, sizes)),
    ]
    taps = case.kernel[0] * case.kernel[1] + 1
    assert results[0].dtype == dtype and results[0].shape == results[1].shape
    assert_rounded(results[0].detach(), results[1].detach(), results[2].detach(), taps)
    # If sizes are 1 or 0, the input's strides do not determine its format.
    if case.batch is not None and not (case.channels == 1 or inputs[0].is_contiguous()):
        assert results[0].is_contiguous(memory_format=memory_format)

    grad = torch.randn(results[0].shape, generator=torch.Generator().manual_seed(7)).to(dtype)
    of_each = (grad, grad.double(), grad.double().abs())
    grads = [*map(torch.autograd.grad, results, (ours, exact, sizes), of_each)]
    assert grads[0][0].stride() == inputs[0].stride() or not grad.numel()
    pixels = grad.numel() // grad.shape[-3]
    for mine, theirs, size, terms in zip(*grads, (taps * case.multiplier, pixels, pixels), strict=False):
        assert mine.shape == theirs.shape
        assert_rounded(mine, theirs, size, terms)
