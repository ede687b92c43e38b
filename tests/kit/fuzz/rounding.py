"""How much two results may differ, since floating-point numbers are rounded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

# With values from this magnitude on, the order of additions matters.
LARGE = 1e4
# The square of a smaller number is zero in single precision.
TINY = 1e-18

Change = Callable[[Tensor], Tensor]


class InvalidOutcome(Exception):
    """An invalid outcome."""


def compare(result: list[Tensor], run_again: Callable[[Change], list[Tensor]], given: list[Tensor], text: str) -> None:
    """Check that ``run_again`` gives ``result``, up to rounding errors of the inputs and of sums of equal values.

    Args:
        result: the operator's.
        run_again: computes it in another way, with a change of each input.
        given: the inputs.
        text: describes a difference.

    Raises:
        InvalidOutcome: there is a difference.
    """
    if not all(map(is_tame, given)):
        return
    expected = run_again(lambda x: x)
    if [x.shape for x in result] != [x.shape for x in expected]:
        raise InvalidOutcome(
            f"{text}: shapes {[tuple(x.shape) for x in result]}, not {[tuple(x.shape) for x in expected]}"
        )
    expected = [x.to(y.dtype) for x, y in zip(expected, result, strict=True)]
    if all(map(is_close, result, expected)):
        return
    moved = run_moved(run_again, expected)
    repeated = max(map(repetitions_in, given), default=0)
    for ours, theirs, distance in zip(result, expected, moved, strict=True):
        # Half types are added as float.
        precision = min(eps_of(ours), torch.finfo(torch.float32).eps)
        if not is_close(ours, theirs, 16 * distance + repeated * precision * largest_of(theirs)):
            raise InvalidOutcome(f"{text}: {str(ours)[:1000]}, not {str(theirs)[:1000]}")


def run_moved(run_again: Callable[[Change], list[Tensor]], result: list[Tensor]) -> list[float]:
    """Return how much each result changes, at most, when each input value changes by one rounding error.

    A sum with cancellation cannot be more precise. The parts of a complex value change independently, since a direction
    can cancel out, too.
    """
    generator = torch.Generator().manual_seed(0)

    def move(x: Tensor) -> Tensor:
        if not eps_of(x):
            return x
        parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        # A sum of integers and a Python number would be float, which rounds the change of a double away.
        signs = torch.randint(2, parts.shape, generator=generator).to(torch.double) * 2 - 1
        changed = parts * (1 + signs * eps_of(x)).to(parts.dtype)
        return torch.view_as_complex(changed) if x.is_complex() else changed

    distances = [0.0] * len(result)
    for _ in range(4):
        with contextlib.suppress(InvalidOutcome):
            found = [largest_of(wide(x) - y) for x, y in zip(run_again(move), result, strict=True)]
            distances = [max(pair) for pair in zip(distances, found, strict=True)]
    return distances


def repetitions_in(x: Tensor) -> int:
    """Return how often, at most, one nonzero value occurs.

    The rounding errors of a sum of different values mostly cancel out, as those in `run_moved` do. With equal values
    they can all have the same sign. Both are far below the bound of n errors (Higham, Accuracy and Stability of
    Numerical Algorithms, section 4.2), which only equal values approach.
    """
    numbers = torch.view_as_real(wide(x)).flatten()
    _, counts = numbers[numbers != 0].unique(return_counts=True)
    return int(counts.max()) if counts.numel() else 0


def is_tame(x: Tensor) -> bool:
    """Return whether the order of operations matters little.

    For subnormal complex numbers, the vectorized and the scalar code of PyTorch's own division and sign differ.
    """
    if not eps_of(x):
        return True
    size = wide(x).abs()
    is_subnormal = x.is_complex() and bool(((size > 0) & (size < torch.finfo(x.dtype).tiny)).any())
    return not is_subnormal and bool((size < LARGE).all())


def is_close(one: Tensor, other: Tensor, beyond: float = 0.0) -> bool:
    """Compare up to the rounding errors of sums of a few values, plus ``beyond``."""
    if not (eps := eps_of(one)):
        return torch.equal(one, other)
    atol = 64 * eps * max(1.0, largest_of(one), largest_of(other)) + beyond
    return torch.allclose(wide(one), wide(other), rtol=64 * eps, atol=atol, equal_nan=True)


def eps_of(x: Tensor) -> float:
    """Return the rounding error of its dtype; 0 for integers."""
    return torch.finfo(x.dtype).eps if x.dtype.is_floating_point or x.is_complex() else 0.0


def wide(x: Tensor) -> Tensor:
    """Return its values in the widest dtype."""
    return x.detach().to(torch.complex128)


def largest_of(x: Tensor) -> float:
    """Return the largest finite magnitude."""
    return float(wide(x).abs().nan_to_num(0, 0, 0).max()) if x.numel() else 0.0
