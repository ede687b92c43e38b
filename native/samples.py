"""Inputs that tests call the operators with: OpInfos and `make surfaces` take them from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

Make = Callable[..., Tensor]


def gdh(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((), (5,), (2, 3), (2, 0), (2, 3, 4)):
        yield (make(*shape),)
    yield (make(4, 3).mT,)


def twice_plus(make: Make) -> Iterator[tuple[Any, ...]]:
    for left, right in (((), ()), ((5,), (5,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (3,)), ((2, 0), (1,))):
        yield make(*left), make(*right)
    yield make(4, 3).mT, make(3, 4)


def mul_constant(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((), (5,), (2, 3), (2, 0)):
        yield make(*shape), 3
    yield make(4, 3).mT, 2.5


def affine(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((4,), (2, 4), (2, 3, 4), (0, 4)):
        yield make(*shape), make(5, 4), make(5)
        yield make(*shape), make(5, 4)


def improved_triplet_loss(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((5,), (2, 3), (0, 3), (2, 0)):
        for reduction in range(3):
            yield make(*shape), make(*shape), make(*shape), -1.0, 0.01, 0.002, reduction


def roi_pool(make: Make) -> Iterator[tuple[Any, ...]]:
    boxes = [[0.0, 0.0, 0.0, 5.0, 4.0], [1.0, 1.5, 0.5, 3.0, 9.0], [1.0, 8.0, 8.0, 9.0, 9.0]]
    for count in (3, 1, 0):
        x = make(2, 3, 6, 7)
        yield x, x.detach().new_tensor(boxes[:count]).reshape(-1, 5), 0.5, 2, 3


roi_pool_with_indices = roi_pool


def fft_rfft2_abs(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((3, 4), (2, 3, 5), (1, 1)):
        yield (make(*shape),)


def correlate2d(make: Make) -> Iterator[tuple[Any, ...]]:
    for mode in ("full", "same", "valid"):
        yield make(4, 5), make(2, 3), make(1), {"mode": mode}
        yield make(2, 3, 4), make(3, 4), {"mode": mode}


def depthwise_conv2d(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(2, 3, 5, 6), make(3, 1, 3, 3), make(3), (1, 1), (1, 1)
    yield make(1, 2, 7, 6), make(4, 1, 3, 2), None, (2, 1), (0, 1), (1, 2)
    yield make(3, 5, 5), make(3, 1, 2, 2), make(3), (2, 2)
    yield make(0, 2, 4, 4), make(2, 1, 3, 3)
