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
    r"""Applies a 2D cross-correlation with learnable kernels to each image, and adds a learnable bias.

    See :func:`torch.correlate2d` for the formula.

    Args:
        kernel_size (int or tuple): Size of the kernel
        mode (str, optional): ``'full'``, ``'same'`` or ``'valid'``. Default: ``'valid'``
        boundary (str, optional): ``'fill'``, ``'wrap'`` or ``'symm'``. Default: ``'fill'``
        fillvalue (Number, optional): Value beyond the edges, for ``'fill'``. Default: ``0``
        method (str, optional): ``'auto'``, ``'direct'`` or ``'fft'``. Default: ``'auto'``
        bias (bool, optional): If ``True``, adds a learnable bias to each output map. Default: ``True``
        num_kernels (int, optional): Number of kernels. Each gives every image an output map. Default: one kernel,
            without a dimension for the maps

    Shape:
        - Input: :math:`(*, H, W)`, where :math:`*` is any number of dimensions, including none.
        - Output: :math:`(*, H_{out}, W_{out})`, depending on :attr:`mode`, or
          :math:`(*, \text{num\_kernels}, H_{out}, W_{out})`.

    Attributes:
        weight (Tensor): the kernel of shape :math:`(kH, kW)` or the kernels of shape
            :math:`(\text{num\_kernels}, kH, kW)`, drawn from :math:`\mathcal{U}(-\sqrt{k}, \sqrt{k})` with
            :math:`k = 1 / (kH \cdot kW)`
        bias (Tensor): of shape :math:`(1)` or :math:`(\text{num\_kernels})`, from the same distribution.
            ``None`` if :attr:`bias` is ``False``

    Examples::

        >>> m = nn.Correlate2d(3, mode="same")
        >>> m(torch.randn(20, 50, 100)).shape
        torch.Size([20, 50, 100])
        >>> m = nn.Correlate2d(3, mode="same", boundary="wrap", num_kernels=8)
        >>> m(torch.randn(20, 50, 100)).shape
        torch.Size([20, 8, 50, 100])
    """

    # TorchScript has no complex constants, so it takes the type of fillvalue from its value.
    __constants__ = ["kernel_size", "mode", "boundary", "method", "num_kernels"]
    kernel_size: tuple[int, int]
    mode: str
    boundary: str
    method: str
    num_kernels: int | None
    weight: Tensor

    def __init__(
        self,
        kernel_size: _size_2_t,
        mode: str = "valid",
        boundary: str = "fill",
        fillvalue: complex = 0,
        method: str = "auto",
        bias: bool = True,
        num_kernels: int | None = None,
        device=None,
        dtype=None,
    ) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.kernel_size = _pair(kernel_size)
        self.mode = mode
        self.boundary = boundary
        self.fillvalue = fillvalue
        self.method = method
        self.num_kernels = num_kernels
        maps = () if num_kernels is None else (num_kernels,)
        self.weight = Parameter(torch.empty(*maps, *self.kernel_size, **factory_kwargs))
        if bias:
            self.bias = Parameter(torch.empty(maps or 1, **factory_kwargs))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters again."""
        bound = 1 / math.sqrt(self.kernel_size[0] * self.kernel_size[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return the correlation of ``input`` with each kernel."""
        if self.num_kernels is not None:
            input = input.unsqueeze(-3)
        return torch.correlate2d(
            input,
            self.weight,
            self.bias,
            mode=self.mode,
            boundary=self.boundary,
            fillvalue=self.fillvalue,
            method=self.method,
        )

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        s = f"kernel_size={self.kernel_size}, mode={self.mode!r}"
        for name, default in {"boundary": "fill", "fillvalue": 0, "method": "auto"}.items():
            s += "" if getattr(self, name) == default else f", {name}={getattr(self, name)!r}"
        s += ", bias=False" if self.bias is None else ""
        return s if self.num_kernels is None else s + f", num_kernels={self.num_kernels}"
