import torch
from torch import Tensor
from torch.nn.modules.linear import Linear


__all__ = ["Affine"]


class Affine(Linear):
    r"""Applies an affine map to the last dimension of the input: :math:`y = x W^T + b`.

    It is a :class:`~torch.nn.Linear` that computes with :func:`torch.affine`.

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

    def forward(self, input: Tensor) -> Tensor:
        """Return the affine map of ``input``."""
        return torch.affine(input, self.weight, self.bias)
