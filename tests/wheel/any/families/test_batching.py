"""torch.vmap: functorch's test_vmap.py."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opinfos import OPERATORS, QUIET, each_of, in_one, instantiate, tensors_of
from torch import Tensor
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

pytestmark = QUIET


def on_tensors(op: OpInfo, sample: SampleInput) -> tuple[Callable[..., Any], list[Tensor]]:
    """Return a sample's call as a function of its tensors, and these."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def function(*tensors: Tensor) -> Any:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(values, spec)
        return op(first, *args, **kwargs)

    return function, [leaves[place] for place in places]


def dimensions(count: int, *choices: int | None) -> list[tuple[int | None, ...]]:
    """Return all ``in_dims`` of ``count`` tensors that make a batch of at least one of them."""
    every = itertools.product((None, *choices), repeat=count)
    return [dims for dims in every if any(dim is not None for dim in dims)]


class TestVmap(TestCase):
    SIZE = 3

    def batched(self, tensors: list[Tensor], dims: tuple[int | None, ...]) -> list[Tensor]:
        """Yield each tensor repeated along its dimension, with other values each time."""
        return [
            t if dim is None else torch.stack([t, t.flip(0) if t.dim() else t + t, t * 0], dim)
            for t, dim in zip(tensors, dims, strict=True)
        ]

    def cases(self, op: OpInfo, device: str, dtype: torch.dtype) -> Iterator[Any]:
        for sample in op.sample_inputs(device, dtype):
            function, tensors = on_tensors(op, sample)
            for dims in dimensions(len(tensors), 0, -1):
                yield function, self.batched(tensors, dims), dims

    @in_one
    def test_vmap_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        torch._C._functorch._set_vmap_fallback_warning_enabled(False)
        self.addCleanup(torch._C._functorch._set_vmap_fallback_warning_enabled, True)
        for function, tensors, dims in self.cases(op, device, dtype):
            slices = [
                [t if dim is None else t.select(dim, i) for t, dim in zip(tensors, dims, strict=True)]
                for i in range(self.SIZE)
            ]
            expected = [function(*each) for each in slices]
            try:
                result = torch.vmap(function, dims)(*tensors)
            except RuntimeError as error:
                if "could not generate a fallback" not in str(error):
                    raise
                reason = "no batching rule, and where there are lists of tensors PyTorch has no loop in its place"
                raise unittest.SkipTest(reason) from error
            for position, ours in enumerate(tensors_of(result)):
                self.assertEqual(ours, torch.stack([tensors_of(each)[position] for each in expected]))

    @each_of([info for info in OPERATORS if info.error_inputs_func], dtypes=OpDTypes.none)
    def test_errors_are_raised(self, device: str, op: OpInfo) -> None:
        torch._C._functorch._set_vmap_fallback_warning_enabled(False)
        self.addCleanup(torch._C._functorch._set_vmap_fallback_warning_enabled, True)
        for wrong in op.error_inputs(device):
            function, tensors = on_tensors(op, wrong.sample_input)
            for dims in dimensions(len(tensors), 0):
                batch = [t if dim is None else t.expand(2, *t.shape) for t, dim in zip(tensors, dims, strict=True)]
                with self.assertRaises((RuntimeError, TypeError, ValueError, IndexError), msg=f"in_dims={dims}"):
                    torch.vmap(function, dims)(*batch)


instantiate(globals(), TestVmap)
