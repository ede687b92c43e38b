"""The shipped operators in one table, for tests that apply to all of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from samples import values
from torch import Tensor


@dataclass(frozen=True)
class Operator:
    """An operator as a function of its differentiable tensors.

    Args:
        function: calls it.
        shapes: returns its tensors' shapes, for a batch of the given size.
        plain: the same with PyTorch's own operators; None if that needs a loop.
    """

    function: Callable[..., Tensor]
    shapes: Callable[[int], list[tuple[int, ...]]]
    plain: Callable[..., Tensor] | None

    def inputs(self, batch: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Return tensors to call it with."""
        return [values(shape, dtype, seed).requires_grad_() for seed, shape in enumerate(self.shapes(batch))]


BOXES = torch.tensor([[0, 0, 0, 5, 4], [1, 2, 1, 6, 5], [1, 4, 4, 3, 3]], dtype=torch.float32)


def plain_loss(anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    d_ap, d_an = (anchor - positive).square().sum(-1), (anchor - negative).square().sum(-1)
    return (d_ap - d_an).clamp(min=-1.0) + 0.5 * d_ap.clamp(min=0.01)


OPERATORS = {
    "gdh": Operator(torch.gdh, lambda n: [(n, 3, 4)], lambda x: x.flatten().clone()),
    "twice_plus": Operator(torch.twice_plus, lambda n: [(n, 3, 4), (4,)], lambda x, y: 2 * x + y),
    "mul_constant": Operator(lambda x: torch.mul_constant(x, 2.5), lambda n: [(n, 3, 4)], lambda x: x * 2.5),
    "affine": Operator(torch.affine, lambda n: [(n, 3, 4), (5, 4), (5,)], F.linear),
    "depthwise_conv2d": Operator(
        # Without padding: some convolutions multiply its zeros by a NaN in the weight, others skip them, like ours.
        lambda x, weight, bias: torch.depthwise_conv2d(x, weight, bias),
        lambda n: [(n, 4, 9, 8), (4, 1, 3, 3), (4,)],
        lambda x, weight, bias: F.conv2d(x, weight, bias, groups=4),
    ),
    "improved_triplet_loss": Operator(
        lambda *inputs: torch.improved_triplet_loss(*inputs, -1.0, 0.01, 0.5, "none"),
        lambda n: [(n, 7)] * 3,
        plain_loss,
    ),
    "roi_pool": Operator(lambda x: torch.roi_pool(x, BOXES.to(x.dtype), 1.0, 2, 3), lambda n: [(n, 3, 6, 7)], None),
    "fft.rfft2_abs": Operator(torch.fft.rfft2_abs, lambda n: [(n, 4, 6)], lambda x: torch.fft.rfft2(x).abs()),
    "correlate2d": Operator(
        torch.correlate2d, lambda n: [(n, 6, 7), (2, 3)], lambda x, k: F.conv2d(x[:, None], k[None, None])[:, 0]
    ),
}
