"""correlate2d: compared with F.conv2d and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import scipy.signal
import torch
from torch.nn.functional import conv2d

from ..case import Case, Side, backward, forward

# From a 3 x 3 filter of an image to a kernel as large as the image.
_SIZES = [(1, 64, 3), (1, 512, 3), (16, 128, 5), (1, 256, 11), (4, 128, 21), (1, 256, 41), (1, 128, 128)]


def _by_conv2d(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    return conv2d(x.unsqueeze(1), kernel[None, None]).squeeze(1)


def _by_scipy(x: torch.Tensor, kernel: torch.Tensor) -> object:
    return [scipy.signal.correlate2d(image, kernel.numpy(), "valid") for image in x.numpy()]


def cases() -> Iterator[Case]:
    """Both peers forward, F.conv2d backward."""
    for batch, size, kernel in _SIZES:
        name = f"[{batch}, {size}, {size}] by {kernel} x {kernel}"
        for step, how, peer, theirs in (
            ("forward", forward, "F.conv2d", _by_conv2d),
            ("forward", forward, "SciPy", _by_scipy),
            ("backward", backward, "F.conv2d", _by_conv2d),
        ):
            make = partial(_make, how, theirs, (batch, size, size), kernel)
            yield Case("correlate2d", peer, name, step, 1, make)


def _make(
    how: Callable[..., tuple[Side, Side]], theirs: Callable[..., object], shape: tuple[int, ...], kernel: int
) -> tuple[Side, Side]:
    return how(torch.correlate2d, theirs, torch.randn(shape), torch.randn(kernel, kernel, requires_grad=True))
