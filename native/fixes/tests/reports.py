"""The reports that this folder is about: for each a computation, and its right value, by a formula of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import sympy
import torch
from torch import Tensor

INF, NAN = math.inf, math.nan
DOUBLE = torch.float64


@dataclass(frozen=True)
class Report:
    """A report.

    Args:
        number: of PyTorch's issue or pull request.
        compute: what is wrong in PyTorch.
        right: the value that it should have.
        releases: those that have it wrong.
    """

    number: int
    compute: Callable[[], Tensor]
    right: float
    releases: str = ""

    def is_right(self) -> bool:
        """Return whether this torch computes the right value."""
        try:
            found = self.compute()
        except (IndexError, NotImplementedError, RuntimeError):  # not implemented, or not valid
            return False
        return torch.allclose(
            found.detach().double(), torch.tensor(self.right, dtype=DOUBLE), 1e-6, 1e-9, equal_nan=True
        )


def double(value: float) -> Tensor:
    """Return a number of float64 that requires a gradient."""
    return torch.tensor(value, dtype=DOUBLE, requires_grad=True)


def derivative(function: Callable[[Tensor], Tensor], x: Tensor, order: int) -> Tensor:
    """Return a derivative of a pointwise function, in reverse mode, of the shape of x."""
    y = function(x)
    for _ in range(order):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y


def _cholesky_inverse() -> Tensor:
    def total(t: Tensor) -> Tensor:
        one, zero = torch.ones_like(t), torch.zeros_like(t)
        return torch.cholesky_inverse(torch.stack((t + one, zero, one, 2 * one)).reshape(2, 2)).sum()

    return torch.func.jvp(total, (double(0.7).detach(),), (torch.ones((), dtype=DOUBLE),))[1]


def _cholesky_solve() -> Tensor:
    """Solve for two matrices, of which PyTorch's tangent is wrong for one."""

    def total(t: Tensor) -> Tensor:
        one, zero = torch.ones_like(t), torch.zeros_like(t)
        factors = torch.stack((2 * one, zero, t, 3 * one, 3 * one, zero, 2 * t + 1, 2 * one)).reshape(2, 2, 2)
        weights = torch.tensor([[[1, 2], [3, 4]], [[2, -1], [4, 3]]], dtype=DOUBLE)
        return (torch.cholesky_solve(torch.tensor([[1, 2], [-1, 3]], dtype=DOUBLE), factors) * weights).sum()

    return torch.func.jvp(total, (double(-7.0).detach(),), (torch.ones((), dtype=DOUBLE),))[1]


def _exact_cholesky_solve() -> float:
    """Return the same in rational numbers."""
    t = sympy.Symbol("t")
    total = 0
    for factor, weights in (
        ([[2, 0], [t, 3]], [[1, 2], [3, 4]]),
        ([[3, 0], [2 * t + 1, 2]], [[2, -1], [4, 3]]),
    ):
        lower = sympy.Matrix(factor)
        solution = (lower * lower.T).inv() * sympy.Matrix([[1, 2], [-1, 3]])
        total += sum(solution.multiply_elementwise(sympy.Matrix(weights)))
    return float(sympy.diff(total, t).subs(t, -7))


def _addmm() -> Tensor:
    nothing = torch.full((2, 3), NAN)
    return torch.vmap(lambda x, a, b: torch.addmm(x, a, b, beta=0))(
        nothing, torch.ones(2, 1, 4), torch.ones(2, 4, 3)
    ).max()


def _sparse_mul() -> Tensor:
    """Each of the two elements is multiplied by three ones."""
    return torch.sparse.sum(torch.tensor([[[1.0], [2.0]]]).to_sparse() * torch.ones(1, 1, 3))


def _csr() -> Tensor:
    return torch.zeros(3, 4).to_sparse_csr().sum(dim=(0, 1), keepdim=True).to_dense().sum()


def _histc() -> Tensor:
    """Count with one thread, each of which has counts of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return torch.histc(torch.zeros(1).expand(2**25 + 8), 1, -1, 1)[0]
    finally:
        torch.set_num_threads(threads)


REPORTS = [
    Report(187803, lambda: derivative(torch.sinc, double(0.0), 2), -(math.pi**2) / 3),
    Report(196704, lambda: derivative(lambda x: torch.logaddexp(x, double(1000.0)), double(0.0), 2), math.exp(-1000)),
    Report(196787, lambda: derivative(lambda x: torch.logaddexp2(x, double(0.0)), double(-1100.0), 2), 2.0**-1100),
    # The sum of (L L^T)^-1 is 5 / (4 a^2) - 1 / (2 a) + 1 / 4 with a = t + 1.
    Report(196682, _cholesky_inverse, -5 / (2 * 1.7**3) + 1 / (2 * 1.7**2)),
    Report(196694, _cholesky_solve, _exact_cholesky_solve()),
    Report(189872, lambda: derivative(torch.special.bessel_j0, double(1.0), 1), -float(mpmath.besselj(1, 1)), "<2.15"),
    Report(176298, lambda: torch.ones(1, dtype=torch.uint16) + torch.ones(1, dtype=torch.uint16), 2),
    Report(96613, _histc, 2**25 + 8),
    Report(196214, _csr, 0),
    Report(193753, lambda: torch.fmod(torch.full((33,), 1e308, dtype=DOUBLE), 0.4)[0], math.fmod(1e308, 0.4)),
    Report(132614, lambda: torch.special.gammainc(double(NAN), double(INF)), NAN),
    Report(196596, _addmm, 4),
    Report(185770, lambda: torch.nn.functional.gelu(torch.full((33,), -INF))[0], 0),
    Report(160876, lambda: torch.nn.functional.silu(torch.full((33,), -INF))[0], 0),
    Report(188900, _sparse_mul, 9),
]
