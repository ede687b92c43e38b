import math

import torch
from torch import Tensor
from torch.nn import init
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


__all__ = ["Affine"]


class Affine(Module):
    r"""Applies an affine map to the last dimension of the input: :math:`y = x W^T + b`.

    Args:
        in_features: size of the last dimension of the input.
        out_features: size of the last dimension of the output.
        bias: if ``False``, the module has no additive bias. Default: ``True``

    Shape:
        - Input: :math:`(*, \text{in\_features})`, where :math:`*` is any number of dimensions, including none.
        - Output: :math:`(*, \text{out\_features})`.

    Attributes:
        weight: the matrix, of shape :math:`(\text{out\_features}, \text{in\_features})`, drawn from
            :math:`\mathcal{U}(-\sqrt{k}, \sqrt{k})` with :math:`k = 1 / \text{in\_features}`, as
            :class:`torch.nn.Linear` does.
        bias: the vector to add, of shape :math:`(\text{out\_features})`, drawn from the same distribution.

    Examples::

        >>> m = nn.Affine(20, 30)
        >>> m(torch.randn(128, 20)).shape
        torch.Size([128, 30])
    """

    __constants__ = ["in_features", "out_features"]
    in_features: int
    out_features: int
    weight: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.empty((out_features, in_features), **factory_kwargs))
        if bias:
            self.bias = Parameter(torch.empty(out_features, **factory_kwargs))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters again."""
        # The bound of kaiming_uniform_ is sqrt(6 / ((1 + a^2) * fan_in)): with a = sqrt(5) it is 1 / sqrt(fan_in).
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine map of ``input``."""
        return torch.affine(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
