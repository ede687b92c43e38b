"""rfft2_abs: its backward compared with that of rfft2(x).abs()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from ..case import Case, Side, backward, forward


def cases() -> Iterator[Case]:
    """Even and odd sizes, one image and many."""
    for shape in ((64, 64), (16, 128, 128), (512, 512), (3, 255, 257)):
        for step, how, aim in (("forward", forward, 0.98), ("backward", backward, 1.5)):
            yield Case("rfft2_abs", "rfft2(x).abs()", f"{list(shape)} float", step, aim, partial(_make, how, shape))


def _make(how: Callable[..., tuple[Side, Side]], shape: tuple[int, ...]) -> tuple[Side, Side]:
    return how(torch.fft.rfft2_abs, lambda x: torch.fft.rfft2(x).abs(), torch.randn(shape, requires_grad=True))
