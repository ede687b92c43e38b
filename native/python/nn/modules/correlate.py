import math

import torch
from torch import Tensor
from torch.nn import init
from torch.nn.common_types import _size_2_t
from torch.nn.modules.module import Module
from torch.nn.modules.utils import _pair
from torch.nn.parameter import Parameter


__all__ = ["Correlate2d"]


class Correlate2d(Module):
    r"""Applies a 2D cross-correlation with one learnable kernel to each image, and adds a learnable number.

    See :func:`torch.correlate2d` for what is computed.

    Args:
        kernel_size (int or tuple): Size of the kernel
        mode (str, optional): ``'full'``, ``'same'`` or ``'valid'``. Default: ``'valid'``
        method (str, optional): ``'auto'``, ``'direct'`` or ``'fft'``. Default: ``'auto'``
        bias (bool, optional): If ``True``, adds a learnable number to the output. Default: ``True``

    Shape:
        - Input: :math:`(*, H, W)`, where :math:`*` is any number of dimensions, none included.
        - Output: :math:`(*, H_{out}, W_{out})`, as :attr:`mode` says.

    Attributes:
        weight (Tensor): the kernel of shape :math:`(kH, kW)`, drawn from :math:`\mathcal{U}(-\sqrt{k}, \sqrt{k})` with
            :math:`k = 1 / (kH \cdot kW)`
        bias (Tensor): the number, of shape :math:`(1)`, drawn likewise. ``None`` if :attr:`bias` is ``False``

    Examples::

        >>> m = nn.Correlate2d(3, mode="same")
        >>> m(torch.randn(20, 50, 100)).shape
        torch.Size([20, 50, 100])
    """

    __constants__ = ["kernel_size", "mode", "method"]
    kernel_size: tuple[int, int]
    mode: str
    method: str
    weight: Tensor

    def __init__(
        self,
        kernel_size: _size_2_t,
        mode: str = "valid",
        method: str = "auto",
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.kernel_size = _pair(kernel_size)
        self.mode = mode
        self.method = method
        self.weight = Parameter(torch.empty(self.kernel_size, **factory_kwargs))
        if bias:
            self.bias = Parameter(torch.empty(1, **factory_kwargs))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(self.kernel_size[0] * self.kernel_size[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """The correlation of ``input`` with the kernel."""
        return torch.correlate2d(input, self.weight, self.bias, mode=self.mode, method=self.method)

    def extra_repr(self) -> str:
        """The arguments it was made with."""
        s = f"kernel_size={self.kernel_size}, mode={self.mode!r}"
        if self.method != "auto":
            s += f", method={self.method!r}"
        return s if self.bias is not None else s + ", bias=False"
