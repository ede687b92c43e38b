import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.module import Module


__all__ = ["ImprovedTripletLoss"]


class ImprovedTripletLoss(Module):
    r"""Computes the triplet loss with a bound on the distance between anchor and positive, by Cheng et al.,
    `Person Re-Identification by Multi-Channel Parts-Based CNN with Improved Triplet Loss Function` (CVPR 2016).

    With the squared distances :math:`d_{ap} = \lVert a - p \rVert^2` and :math:`d_{an} = \lVert a - n \rVert^2` the
    loss of one triplet is

    .. math::
        \ell(a, p, n) = \max(d_{ap} - d_{an}, \tau_1) + \beta \max(d_{ap}, \tau_2)

    The first term pulls the positive nearer than the negative, by a margin of :math:`-\tau_1`. The second pulls the
    positive nearer than :math:`\sqrt{\tau_2}`, whatever the distance of the negative.

    Args:
        tau1: the lower bound of the first term, usually negative. Default: :math:`-1`
        tau2: the lower bound of the second term. Default: :math:`0.01`
        beta: the weight of the second term. Default: :math:`0.002`
        reduction: ``'none'`` for the loss of each triplet, ``'mean'`` for their mean or ``'sum'`` for their sum.
            Default: ``'mean'``

    Shape:
        - Anchor, positive, negative: :math:`(*, D)`, where :math:`*` means any number of dimensions, including none.
        - Output: :math:`(*)` if :attr:`reduction` is ``'none'``, otherwise a scalar.

    Examples::

        >>> criterion = nn.ImprovedTripletLoss()
        >>> anchor, positive, negative = torch.randn(3, 100, 128, requires_grad=True)
        >>> criterion(anchor, positive, negative).backward()
    """

    __constants__ = ["tau1", "tau2", "beta", "reduction"]
    tau1: float
    tau2: float
    beta: float
    reduction: str

    def __init__(
        self,
        tau1: float = -1.0,
        tau2: float = 0.01,
        beta: float = 0.002,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.tau1 = tau1
        self.tau2 = tau2
        self.beta = beta
        self.reduction = reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss of the triplets."""
        return F.improved_triplet_loss(
            anchor,
            positive,
            negative,
            tau1=self.tau1,
            tau2=self.tau2,
            beta=self.beta,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"tau1={self.tau1}, tau2={self.tau2}, beta={self.beta}, reduction={self.reduction}"
