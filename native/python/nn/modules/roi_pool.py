import torch.nn.functional as F
from torch import Tensor
from torch.nn.common_types import _size_2_t
from torch.nn.modules.module import Module
from torch.nn.modules.utils import _pair


__all__ = ["RoIPool"]


class RoIPool(Module):
    r"""Pools the largest values in regions of interest into grids of one size, as Fast R-CNN does.

    Each box is scaled, and its corners are rounded to pixels, halves away from zero. The region has the rows and
    columns from the first corner to the last, both included, and at least one of each. A length :math:`l` is split
    into :math:`n` bins: with :math:`s = l / n`, bin :math:`i` starts at :math:`\lfloor i s \rfloor` and ends before
    :math:`\lceil (i + 1) s \rceil`. Only the part of a bin within the image is pooled. If there is none, the output
    is 0 and has no gradient.

    Args:
        output_size: the size of the grid, a number or a pair :math:`(H_{out}, W_{out})`.
        spatial_scale: the factor for the boxes' coordinates. Default: 1

    Shape:
        - Input: :math:`(N, C, H, W)`
        - Boxes: :math:`(K, 5)`, in each row the index of the image and the corners :math:`(x_1, y_1, x_2, y_2)`; or a
          list with a tensor :math:`(K_i, 4)` of corners for each image, and :math:`K = \sum_i K_i`.
        - Output: :math:`(K, C, H_{out}, W_{out})`

    Examples::

        >>> m = nn.RoIPool((7, 7), spatial_scale=1 / 16)
        >>> boxes = torch.tensor([[0., 0., 0., 320., 240.], [1., 100., 100., 420., 500.]])
        >>> m(torch.randn(2, 256, 40, 50), boxes).shape
        torch.Size([2, 256, 7, 7])
    """

    __constants__ = ["output_size", "spatial_scale"]
    output_size: tuple[int, int]
    spatial_scale: float

    def __init__(self, output_size: _size_2_t, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = spatial_scale

    def forward(self, input: Tensor, boxes: Tensor | list[Tensor]) -> Tensor:
        """Return the pooled regions."""
        return F.roi_pool(input, boxes, self.output_size, self.spatial_scale)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}"
