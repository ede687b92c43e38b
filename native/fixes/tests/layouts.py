"""Sizes at which kernels take other paths, and memory layouts."""

from __future__ import annotations

import torch
from torch import Tensor

SIZES = (1, 8, 17, 33, 1000)
LAYOUTS = ("contiguous", "strided", "channels_last")
_SHAPES = {1: (1, 1, 1, 1), 8: (1, 2, 2, 2), 17: (1, 17, 1, 1), 33: (1, 3, 11, 1), 1000: (2, 5, 10, 10)}


def laid_out(values: Tensor, layout: str) -> Tensor:
    """Return the values in a layout. Flattened they are the same."""
    if layout == "strided":
        return torch.stack([values, values], dim=1)[:, 1]
    if layout == "channels_last":
        return values.reshape(_SHAPES[values.numel()]).contiguous(memory_format=torch.channels_last)
    return values.clone()


def repeated(values: list[float], size: int, dtype: torch.dtype) -> Tensor:
    """Return so many numbers, taken from values in turn."""
    return torch.tensor([values[i % len(values)] for i in range(size)], dtype=torch.float64).to(dtype)
