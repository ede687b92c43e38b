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


def depthwise_conv2d(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(2, 3, 5, 6), make(3, 1, 3, 3), make(3), (1, 1), (1, 1)
    yield make(1, 2, 7, 6), make(4, 1, 3, 2), None, (2, 1), (0, 1), (1, 2)
    yield make(3, 5, 5), make(3, 1, 2, 2), make(3), (2, 2)
    yield make(0, 2, 4, 4), make(2, 1, 3, 3)
