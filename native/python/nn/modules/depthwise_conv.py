import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import init
from torch.nn.common_types import _size_2_t
from torch.nn.parameter import Parameter

from .module import Module
from .utils import _pair

__all__ = ["DepthwiseConv2d"]


class DepthwiseConv2d(Module):
    r"""Applies a 2D convolution in which every output channel sees one input channel.

    Of each of the :math:`C` input channels it makes ``channel_multiplier`` output channels:

    .. math::
        \text{out}(N_i, c) = \text{bias}(c) + \text{weight}(c) \star \text{input}(N_i, \lfloor c / m \rfloor)

    where :math:`\star` is the 2D cross-correlation operator and :math:`m` the multiplier. It computes what
    ``Conv2d(channels, channels * channel_multiplier, kernel_size, groups=channels)`` with the same parameters does.

    Args:
        channels (int): Number of channels in the input image
        kernel_size (int or tuple, optional): Size of the convolving kernel. Default: 3
        stride (int or tuple, optional): Stride of the convolution. Default: 1
        padding (int or tuple, optional): Zeros added to all four sides of the input. Default: 0
        dilation (int or tuple, optional): Spacing between kernel elements. Default: 1
        channel_multiplier (int, optional): Number of output channels for each input channel. Default: 1
        bias (bool, optional): If ``True``, adds a learnable bias to the output. Default: ``True``

    Shape:
        - Input: :math:`(N, C, H_{in}, W_{in})` or :math:`(C, H_{in}, W_{in})`
        - Output: :math:`(N, C \cdot m, H_{out}, W_{out})` or :math:`(C \cdot m, H_{out}, W_{out})`, where

          .. math::
              H_{out} = \left\lfloor\frac{H_{in}  + 2 \times \text{padding}[0] - \text{dilation}[0]
                        \times (\text{kernel\_size}[0] - 1) - 1}{\text{stride}[0]} + 1\right\rfloor

          and :math:`W_{out}` likewise.

    Attributes:
        weight (Tensor): the learnable weights of shape :math:`(C \cdot m, 1, kH, kW)`, initialized from
            :math:`\mathcal{U}(-\sqrt{k}, \sqrt{k})` with :math:`k = 1 / (kH \cdot kW)`
        bias (Tensor): the learnable bias of shape :math:`(C \cdot m)`, initialized likewise. ``None`` if
            :attr:`bias` is ``False``

    Examples::

        >>> m = nn.DepthwiseConv2d(16, 3, stride=2, padding=1, channel_multiplier=2)
        >>> output = m(torch.randn(20, 16, 50, 100))
        >>> print(output.shape)
        torch.Size([20, 32, 25, 50])
    """

    __constants__ = ["channels", "kernel_size", "stride", "padding", "dilation", "channel_multiplier"]

    channels: int
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    channel_multiplier: int
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        channels: int,
        kernel_size: _size_2_t = 3,
        stride: _size_2_t = 1,
        padding: _size_2_t = 0,
        dilation: _size_2_t = 1,
        channel_multiplier: int = 1,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        if channels <= 0 or channel_multiplier <= 0:
            raise ValueError(
                f"channels and channel_multiplier must be positive, got {channels} and {channel_multiplier}"
            )
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.channels = channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.dilation = _pair(dilation)
        self.channel_multiplier = channel_multiplier
        outputs = channels * channel_multiplier
        self.weight = Parameter(torch.empty((outputs, 1, *self.kernel_size), **factory_kwargs))
        if bias:
            self.bias = Parameter(torch.empty(outputs, **factory_kwargs))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters as :class:`~torch.nn.Conv2d` does."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.kernel_size[0] * self.kernel_size[1])
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.depthwise_conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        s = "{channels}, kernel_size={kernel_size}, stride={stride}"
        if self.padding != (0, 0):
            s += ", padding={padding}"
        if self.dilation != (1, 1):
            s += ", dilation={dilation}"
        if self.channel_multiplier != 1:
            s += ", channel_multiplier={channel_multiplier}"
        if self.bias is None:
            s += ", bias=False"
        return s.format(**self.__dict__)
