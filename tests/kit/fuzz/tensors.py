"""The description of a tensor, and its creation: values, strides, dtype, device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

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
        """Return what matters for a reader, without values."""
        dtype = str(self.dtype).removeprefix("torch.")
        more = [text for text in (self.layout, self.fill, self.device) if text not in ("contiguous", "", "cpu")]
        return " ".join([f"{dtype}{list(self.shape)}", *more])

    @property
    def is_huge(self) -> bool:
        """Whether it has more elements than memory of its own."""
        return math.prod(self.shape) > LARGEST

    def make(self) -> Tensor:
        """Create the tensor."""
        x = LAYOUTS[self.layout](self._numbers(), Random(self.seed))
        x = x.expand(self.shape) if self.is_huge else x
        is_differentiable = self.dtype.is_floating_point or self.dtype.is_complex
        return x.to(self.device).requires_grad_(self.requires_grad and is_differentiable)

    def _numbers(self) -> Tensor:
        shape = tuple(1 for _ in self.shape) if self.is_huge else self.shape
        generator = torch.Generator().manual_seed(self.seed)
        wide = torch.complex128 if self.dtype.is_complex else torch.float64
        x = 3 * torch.randn(shape, generator=generator, dtype=wide)
        if self.like is not None and self.like.dim() == len(shape) and self.like.numel():
            x = self.like
            for dim, size in enumerate(shape):
                x = x.index_select(dim, torch.arange(size) % x.shape[dim])
        if self.fill:
            chosen = torch.rand(shape, generator=generator) < 0.5
            x = torch.where(chosen, torch.tensor(FILLS[self.fill], dtype=wide), x)
        if x.is_complex() and not self.dtype.is_complex:
            x = x.real
        return x.to(self.dtype).clone(memory_format=torch.contiguous_format)


def _dense(x: Tensor, order: list[int]) -> Tensor:
    """Lay ``x`` out in memory with its dimensions in this order."""
    return x.permute(order).contiguous().permute([order.index(dim) for dim in range(x.dim())])


def _expanded(x: Tensor, random: Random) -> Tensor:
    dim = random.randrange(max(x.dim(), 1))
    return x.narrow(dim, 0, min(1, x.shape[dim])).expand_as(x) if x.dim() else x


def _overlapping(x: Tensor, random: Random) -> Tensor:
    strides = [random.randrange(4) for _ in x.shape]
    last = sum(stride * max(size - 1, 0) for stride, size in zip(strides, x.shape, strict=True))
    return x.flatten().repeat(1 + last // max(x.numel(), 1)).as_strided(x.shape, strides) if x.numel() else x


LAYOUTS: dict[str, Callable[[Tensor, Random], Tensor]] = {
    "contiguous": lambda x, random: x,
    "permuted": lambda x, random: _dense(x, random.sample(range(x.dim()), x.dim())),
    "channels_last": lambda x, random: _dense(x, [0, *range(2, x.dim()), 1]) if x.dim() > 2 else x,
    "strided": lambda x, random: torch.stack([x, x], -1)[..., random.randrange(2)],
    "offset": lambda x, random: torch.cat([x.new_zeros(3), x.flatten()])[3:].view(x.shape),
    "expanded": _expanded,
    "overlapping": _overlapping,
    "conjugated": lambda x, random: x.conj(),
    "negated": lambda x, random: torch._neg_view(x) if x.dtype != torch.bool else x,
}
