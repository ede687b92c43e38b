"""improved_triplet_loss: one pass, compared with the same in plain operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from ..case import Case, Side, backward, forward

_PARAMETERS = (-1.0, 0.01, 0.002)


def _composite(anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    tau1, tau2, beta = _PARAMETERS
    d_ap = (anchor - positive).square().sum(-1)
    d_an = (anchor - negative).square().sum(-1)
    return ((d_ap - d_an).clamp(min=tau1) + beta * d_ap.clamp(min=tau2)).mean()


def _fused(anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> object:
    return torch.improved_triplet_loss(anchor, positive, negative, *_PARAMETERS)


def cases() -> Iterator[Case]:
    """A small batch, a usual one and a large one; half types compared with the same."""
    for shape in ((32, 128), (256, 512), (4096, 400)):
        for dtype in (torch.float, torch.bfloat16):
            for step, how in (("forward", forward), ("backward", backward)):
                name = f"{list(shape)} {str(dtype).removeprefix('torch.')}"
                make = partial(_make, how, shape, dtype)
                yield Case("improved_triplet_loss", "plain operations", name, step, 3, make)


def _make(how: Callable[..., tuple[Side, Side]], shape: tuple[int, int], dtype: torch.dtype) -> tuple[Side, Side]:
    return how(_fused, _composite, *(torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)))
