"""Operators with tensors of indices, with samples and without: stand-ins in Python for those of a folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from helpers import write
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo

from tests.kit.made_up import NoSamples
from tests.kit.opinfos import op_info
from tests.kit.samples import Samples

Kernel = Callable[[Tensor, Tensor], Tensor]
NAME = "kit_of_indices"


def summed(x: Tensor, index: Tensor) -> Tensor:
    """Sum the rows from each index to the next."""
    sums = torch.cat([x.new_zeros(1, *x.shape[1:]), x.cumsum(0)])
    return sums[index[1:]] - sums[index[:-1]]


def added(x: Tensor, index: Tensor) -> Tensor:
    """Take any two tensors of one dtype: there is no index."""
    return x + index


def refusing(x: Tensor, index: Tensor) -> Tensor:
    raise RuntimeError("expected index to be sorted")


def looked_up(x: Tensor, index: Tensor) -> Tensor:
    if index.is_floating_point() or index.is_complex():
        raise RuntimeError("expected index to be of an integral dtype")
    return x[index.flatten().long()]


def refusing_range(x: Tensor, index: Tensor) -> Tensor:
    if index.dtype != torch.long:
        raise RuntimeError("expected index to be int64")
    if int(index.max()) >= len(x):
        raise RuntimeError("index 8 is out of bounds: x has 3 rows")
    return x[index.flatten()]


def reading(x: Tensor, index: Tensor) -> Tensor:
    """Like a kernel without checks, end the process for an index that is far out of range."""
    if index.dtype == torch.long and int(index.max()) > 1 << 20:
        os.abort()
    return x + index


def ending(x: Tensor, index: Tensor) -> Tensor:
    os._exit(3)  # as a sanitizer does


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Kernel, str], OpInfo]]:
    """Return a function that returns the OpInfo of an added operator, from its kernel and the text of samples.py."""
    library = torch.library.Library("aten", "FRAGMENT")

    def describe(kernel: Kernel, samples: str) -> OpInfo:
        library.define(f"{NAME}(Tensor self, Tensor index) -> Tensor")
        library.impl(NAME, kernel, "CompositeImplicitAutograd")
        monkeypatch.setattr(torch, NAME, getattr(torch.ops.aten, NAME), raising=False)
        monkeypatch.setitem(torch._added_operators.PUBLIC, NAME, f"torch.{NAME}")
        monkeypatch.setitem(torch._added_operators.FUNCTIONS, f"torch.{NAME}", lambda input, index: -1)
        write(tmp_path, {"samples.py": samples})
        return op_info(NAME, Samples([tmp_path]))

    yield describe
    library._destroy()


def test_derivatives_are_found_beside_an_index(described: Callable[[Kernel, str], OpInfo]) -> None:
    samples = f"import torch\ndef {NAME}(make):\n    yield make(6, 3), torch.tensor([0, 2, 5, 6])\n"
    info = described(summed, samples)
    assert info.supports_autograd and info.supports_gradgrad
    assert info.supports_forward_ad and info.supports_fwgrad_bwgrad


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (looked_up, "IndexError: index "),
        (refusing_range, "RuntimeError: index 8 is out of bounds"),
        (reading, "SIGABRT"),
        (ending, "exit code 3"),
    ],
)
def test_made_up_index_is_a_skip(described: Callable[[Kernel, str], OpInfo], kernel: Kernel, reason: str) -> None:
    with pytest.raises(NoSamples, match=f"{NAME}: made-up arguments end in {reason}.*; write samples"):
        described(kernel, "")


def test_made_up_arguments_that_are_accepted_count(described: Callable[[Kernel, str], OpInfo]) -> None:
    assert torch.long in described(added, "").dtypes


def test_made_up_arguments_that_are_refused_are_a_skip(described: Callable[[Kernel, str], OpInfo]) -> None:
    with pytest.raises(NoSamples, match=r"accepts made-up arguments in no dtype; write samples: .* to be sorted"):
        described(refusing, "")
