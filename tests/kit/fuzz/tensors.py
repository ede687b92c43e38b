"""The description of a tensor, and its creation: values, strides, dtype, device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.bool, torch.float8_e5m2,
]  # fmt: skip

# The maximum number of elements with their own memory; larger tensors are expanded.
LARGEST = 1 << 20

FILLS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "large": 1e38, "tiny": 1e-45, "zeros": 0.0, "ones": 1.0}


@dataclass(frozen=True)
class Described:
    """A description of a tensor.

    Args:
        shape: its sizes.
        dtype: its dtype.
        seed: the seed of its values and of its memory layout.
        like: a tensor whose values it repeats, as far as they suffice.
        layout: a name in LAYOUTS.
        fill: a name in FILLS, for half of the elements, or empty.
        device: ``cpu`` or ``meta``.
        requires_grad: whether to require a gradient, if the dtype supports it.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int = 0
    like: Tensor | None = None
    layout: str = "contiguous"
    fill: str = ""
    device: str = "cpu"
    requires_grad: bool = False

    def __str__(self) -> str:
        """The values are left out, since they follow from the seed of the call."""
        dtype = str(self.dtype).removeprefix("torch.")
        more = [text for text in (self.layout, self.fill, self.device) if text not in ("contiguous", "", "cpu")]
        return " ".join([f"{dtype}{list(self.shape)}", *more])

    @property
    def is_huge(self) -> bool:
        """Whether it has more elements than memory of its own."""
        return math.prod(self.shape) > LARGEST

    def make(self) -> Tensor:
        """Create the tensor."""
        is_differentiable = self.dtype.is_floating_point or self.dtype.is_complex
        return self._laid_out().to(self.device).requires_grad_(self.requires_grad and is_differentiable)

    def _laid_out(self) -> Tensor:
        x = LAYOUTS[self.layout](self._numbers(), Random(self.seed))
        return x.expand(self.shape) if self.is_huge else x

    def _numbers(self) -> Tensor:
        shape = tuple(1 for _ in self.shape) if self.is_huge else self.shape
        generator = torch.Generator().manual_seed(self.seed)
        if self.like is not None and self.like.dim() == len(shape) and self.like.numel():
            x = self.like
            for dim, size in enumerate(shape):
                x = x.index_select(dim, torch.arange(size) % x.shape[dim])
        else:
            x = 3 * torch.randn(
                shape, generator=generator, dtype=torch.complex128 if self.dtype.is_complex else torch.float64
            )
        if self.fill:
            chosen = torch.rand(shape, generator=generator) < 0.5
            number = torch.tensor(FILLS[self.fill], dtype=torch.float64)
            x = torch.where(chosen, number.to(x.dtype if x.is_complex() else torch.float64), x)
        if x.is_complex() and not self.dtype.is_complex:
            x = x.real
        return x.to(self.dtype).clone(memory_format=torch.contiguous_format)


def _permuted(x: Tensor, random: Random) -> Tensor:
    order = random.sample(range(x.dim()), x.dim())
    inverse = [order.index(dim) for dim in range(x.dim())]
    return x.permute(order).contiguous().permute(inverse)


def _strided(x: Tensor, random: Random) -> Tensor:
    return torch.stack([x, x], -1)[..., random.randrange(2)]


def _offset(x: Tensor, random: Random) -> Tensor:
    before = random.randrange(1, 5)
    return torch.cat([x.new_zeros(before), x.flatten()])[before:].view(x.shape)


def _expanded(x: Tensor, random: Random) -> Tensor:
    if not x.dim():
        return x
    dim = random.randrange(x.dim())
    return x.narrow(dim, 0, min(1, x.shape[dim])).expand_as(x)


def _overlapping(x: Tensor, random: Random) -> Tensor:
    strides = [random.randrange(4) for _ in x.shape]
    last = sum(stride * max(size - 1, 0) for stride, size in zip(strides, x.shape, strict=True))
    return x.flatten().repeat(1 + last // max(x.numel(), 1)).as_strided(x.shape, strides) if x.numel() else x


def _channels_last(x: Tensor, random: Random) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else x


def _conjugated(x: Tensor, random: Random) -> Tensor:
    return x.conj() if x.is_complex() else x


def _negated(x: Tensor, random: Random) -> Tensor:
    return torch._neg_view(x) if x.dtype != torch.bool else x


LAYOUTS: dict[str, Callable[[Tensor, Random], Tensor]] = {
    "contiguous": lambda x, random: x,
    "permuted": _permuted,
    "strided": _strided,
    "offset": _offset,
    "expanded": _expanded,
    "overlapping": _overlapping,
    "channels_last": _channels_last,
    "conjugated": _conjugated,
    "negated": _negated,
}
