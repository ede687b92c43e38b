"""Inputs that tests call the operators with: OpInfos and `make surfaces` take them from here."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import DecorateInfo

Make = Callable[..., Tensor]

# The check takes no two lists that are one: TorchScript makes one constant of `stride` and `dilation`. The OpInfos of
# PyTorch's own convolutions say the same. The second is the test in PyTorch's test_ops_jit.py.
_LISTS = tuple(
    DecorateInfo(unittest.skip("equal lists are one constant"), "TestJit", name)
    for name in ("test_alias_annotation", "test_variant_consistency_jit")
)

# No fft function of PyTorch 2.6 takes symbolic shapes.
_OLD_FFT = tuple(
    DecorateInfo(unittest.skip("no symbolic shapes in fft"), family, name, active_if=torch.__version__ < "2.7")
    for family, name in (
        ("TestProxyTensorOpInfo", "test_make_fx_symbolic_exhaustive"),
        ("TestEagerFusionOpInfo", "test_aot_autograd_symbolic_exhaustive"),
    )
)

OPINFO: dict[str, dict[str, Any]] = {"depthwise_conv2d": {"skips": _LISTS}, "fft_rfft2_abs": {"skips": _OLD_FFT}}


def gdh(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((), (5,), (2, 3), (2, 0), (2, 3, 4)):
        yield (make(*shape),)
    yield (make(4, 3).mT,)


def twice_plus(make: Make) -> Iterator[tuple[Any, ...]]:
    for left, right in (((), ()), ((5,), (5,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (3,)), ((2, 0), (1,))):
        yield make(*left), make(*right)
    yield make(4, 3).mT, make(3, 4)


def mul_constant(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape, constant in (((), 2), ((5,), 0.5), ((2, 3), -3), ((2, 0), 1)):
        yield make(*shape), constant


def affine(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(4, 3), make(5, 3), make(5)
    yield make(4, 3), make(5, 3)
    yield make(2, 4, 3), make(5, 3), make(5)
    yield make(3), make(5, 3)
    yield make(0, 3), make(5, 3), make(5)


def depthwise_conv2d(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(2, 3, 5, 6), make(3, 1, 3, 3), make(3), (1, 1), (1, 1)
    yield make(1, 2, 7, 6), make(4, 1, 3, 2), None, (2, 1), (0, 1), (1, 2)
    yield make(3, 5, 5), make(3, 1, 2, 2), make(3), (2, 2)
    yield make(0, 2, 4, 4), make(2, 1, 3, 3)
    yield make(2, 0, 4, 4), make(0, 1, 3, 3)
    yield make(2, 3, 5, 6), make(6, 1, 4, 3), make(6), {"padding": "same", "dilation": (1, 2)}


def _triplets(make: Make, shape: tuple[int, ...], reductions: Iterable[object]) -> Iterator[tuple[Any, ...]]:
    for reduction in reductions:
        yield *(make(*shape) for _ in range(3)), -1.0, 0.01, 0.5, {"reduction": reduction}


def improved_triplet_loss(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(4, 3), make(4, 3), make(4, 3)
    for shape in ((4, 3), (3,), (2, 2, 3)):
        yield from _triplets(make, shape, ("none", "mean", "sum"))


def improved_triplet_loss_with_distances(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((4, 3), (3,)):
        yield from _triplets(make, shape, range(3))


def roi_pool(make: Make) -> Iterator[tuple[Any, ...]]:
    image = make(2, 3, 6, 7)
    boxes = torch.tensor([[0, 0, 0, 5, 4], [1, 2, 1, 6, 5], [1, 4, 4, 3, 3]], dtype=image.dtype, device=image.device)
    yield image, boxes, 1.0, 2, 3
    yield make(2, 3, 6, 7), boxes, 0.5, 1, 1


roi_pool_with_indices = roi_pool


def correlate2d(make: Make) -> Iterator[tuple[Any, ...]]:
    for mode in ("valid", "same", "full"):
        yield make(2, 5, 6), make(3, 2), {"mode": mode}
    yield make(4, 4), make(4, 4), make()
    yield make(2, 5, 6), make(3, 2), {"method": "fft"}
    yield make(2, 5, 6), make(3, 2), {"mode": "full", "fillvalue": 2}
    for boundary in ("wrap", "symm"):
        yield make(2, 3), make(4, 5), {"mode": "same", "boundary": boundary}
    yield make(2, 1, 5, 6), make(3, 3, 2), make(3)


def fft_rfft2_abs(make: Make) -> Iterator[tuple[Any, ...]]:
    yield (make(4, 5),)
    yield (make(2, 3, 4),)
    yield make(2, 3, 4), (3, -1), (2, 0), "ortho"
