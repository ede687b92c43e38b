"""affine: compared with linear; measures its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn.functional import linear

from ..case import Case, Side, backward, forward


def cases() -> Iterator[Case]:
    """From the cost of a call to that of a matrix product."""
    for shape, features in (((1, 4), 4), ((64, 256), 256), ((512, 1024), 1024)):
        for step, how in (("forward", forward), ("backward", backward)):
            name = f"{list(shape)} to {features}"
            yield Case("affine", "F.linear", name, step, 0.98, partial(_make, how, shape, features))


def _make(how: Callable[..., tuple[Side, Side]], shape: tuple[int, int], features: int) -> tuple[Side, Side]:
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(features, shape[1], requires_grad=True)
    return how(torch.affine, linear, x, weight, torch.randn(features, requires_grad=True))
