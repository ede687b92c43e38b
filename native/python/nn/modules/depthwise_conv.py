import torch.nn.functional as F
from torch import Tensor
from torch.nn.common_types import _size_2_t
from torch.nn.parameter import Parameter

from .conv import Conv2d

__all__ = ["DepthwiseConv2d"]


class DepthwiseConv2d(Conv2d):
    r"""Applies a 2D convolution in which every output channel sees one input channel.

    Each of the :math:`C` input channels gives ``channel_multiplier`` output channels:

    .. math::
        \text{out}(N_i, c) = \text{bias}(c) + \text{weight}(c) \star \text{input}(N_i, \lfloor c / m \rfloor)

    where :math:`\star` is the 2D cross-correlation operator and :math:`m` the multiplier. It is a
    :class:`~torch.nn.Conv2d` with ``groups=channels`` that computes with
    :func:`~torch.nn.functional.depthwise_conv2d`: its ``state_dict`` is that of
    ``Conv2d(channels, channels * channel_multiplier, kernel_size, groups=channels)``.

    Args:
        channels (int): Number of channels in the input image
        kernel_size (int or tuple, optional): Size of the convolving kernel. Default: 3
        stride (int or tuple, optional): Stride of the convolution. Default: 1
        padding (int, tuple or str, optional): Padding added to all four sides of the input. A number, a tuple,
            ``'valid'`` (no padding) or ``'same'`` (the output has the input's size; the stride must be 1).
            Default: 0
        dilation (int or tuple, optional): Spacing between kernel elements. Default: 1
        channel_multiplier (int, optional): Number of output channels for each input channel. Default: 1
        bias (bool, optional): If ``True``, adds a learnable bias to the output. Default: ``True``
        padding_mode (str, optional): ``'zeros'``, ``'reflect'``, ``'replicate'`` or ``'circular'``. Default:
            ``'zeros'``

    Shape:
        - Input: :math:`(N, C, H_{in}, W_{in})` or :math:`(C, H_{in}, W_{in})`
        - Output: :math:`(N, C \cdot m, H_{out}, W_{out})` or :math:`(C \cdot m, H_{out}, W_{out})`, where

          .. math::
              H_{out} = \left\lfloor\frac{H_{in}  + 2 \times \text{padding}[0] - \text{dilation}[0]
                        \times (\text{kernel\_size}[0] - 1) - 1}{\text{stride}[0]} + 1\right\rfloor

          and :math:`W_{out}` in the same way.

    Attributes:
        weight (Tensor): the learnable weights of shape :math:`(C \cdot m, 1, kH, kW)`, initialized from
            :math:`\mathcal{U}(-\sqrt{k}, \sqrt{k})` with :math:`k = 1 / (kH \cdot kW)`
        bias (Tensor): the learnable bias of shape :math:`(C \cdot m)`, from the same distribution. ``None`` if
            :attr:`bias` is ``False``

    Examples::

        >>> m = nn.DepthwiseConv2d(16, 3, stride=2, padding=1, channel_multiplier=2)
        >>> output = m(torch.randn(20, 16, 50, 100))
        >>> print(output.shape)
        torch.Size([20, 32, 25, 50])
    """

    __constants__ = [*Conv2d.__constants__, "channels", "channel_multiplier"]

    channels: int
    channel_multiplier: int

    def __init__(
        self,
        channels: int,
        kernel_size: _size_2_t = 3,
        stride: _size_2_t = 1,
        padding: str | _size_2_t = 0,
        dilation: _size_2_t = 1,
        channel_multiplier: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        if channels <= 0 or channel_multiplier <= 0:
            raise ValueError(
                f"channels and channel_multiplier must be positive, got {channels} and {channel_multiplier}"
            )
        super().__init__(
            channels,
            channels * channel_multiplier,
            kernel_size,
            stride,
            padding,
            dilation,
            groups=channels,
            bias=bias,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )
        self.channels = channels
        self.channel_multiplier = channel_multiplier

    @classmethod
    def from_conv2d(cls, conv: Conv2d) -> "DepthwiseConv2d":
        r"""Make a module that computes what ``conv`` does and shares its parameters.

        As the parameters are shared, an optimizer that holds them needs no change. Hooks are not copied.

        Args:
            conv (Conv2d): a convolution with as many groups as input channels.

        Raises:
            ValueError: ``conv`` is not such a convolution, or computes something else than its base class.

        Example::

            >>> conv = nn.Conv2d(16, 32, 3, padding="same", groups=16)
            >>> m = nn.DepthwiseConv2d.from_conv2d(conv)
            >>> m.weight is conv.weight
            True
        """
        if not isinstance(conv, Conv2d):
            raise ValueError(f"expected a Conv2d, got {type(conv).__name__}")
        if conv.groups != conv.in_channels:
            raise ValueError(
                f"expected conv to have as many groups as input channels, got groups={conv.groups} "
                f"for {conv.in_channels} input channels"
            )
        if getattr(conv.forward, "__func__", None) is not Conv2d.forward or type(conv)._conv_forward not in (
            Conv2d._conv_forward,
            DepthwiseConv2d._conv_forward,
        ):
            raise ValueError(
                f"expected a Conv2d that computes as Conv2d does, but {type(conv).__name__} has a forward of its own"
            )
        for name in ("weight", "bias"):
            if not isinstance(getattr(conv, name), (Parameter, type(None))):
                raise ValueError(f"expected conv.{name} to be a parameter; remove its parametrization or pruning first")
        module = cls(
            conv.in_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.out_channels // conv.in_channels,
            conv.bias is not None,
            conv.padding_mode,
            device="meta",  # allocates no memory and draws no random numbers
        )
        module.weight, module.bias = conv.weight, conv.bias
        return module.train(conv.training)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode != "zeros":
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return F.depthwise_conv2d(padded, weight, bias, self.stride, 0, self.dilation)
        return F.depthwise_conv2d(input, weight, bias, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        s = f"{self.channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, default in {"padding": (0, 0), "dilation": (1, 1), "channel_multiplier": 1}.items():
            s += "" if getattr(self, name) == default else f", {name}={getattr(self, name)!r}"
        s += ", bias=False" if self.bias is None else ""
        return s if self.padding_mode == "zeros" else s + f", padding_mode={self.padding_mode}"
