"""torch.vmap: functorch's test_vmap.py."""

import itertools
import unittest
from collections.abc import Iterator
from typing import Any

import torch
from opinfos import OPERATORS, QUIET, each_of, in_one, instantiate, tensors_of
from torch import Tensor
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_dtype import custom_types
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.kit.samples import on_tensors

pytestmark = QUIET


def dimensions(count: int, *choices: int | None) -> list[tuple[int | None, ...]]:
    """Return all ``in_dims`` of ``count`` tensors that make a batch of at least one of them."""
    every = itertools.product((None, *choices), repeat=count)
    return [dims for dims in every if any(dim is not None for dim in dims)]


def sliced(tensors: list[Tensor], dims: tuple[int | None, ...], changed: list[bool]) -> list[list[Tensor]]:
    """Return three lists of these tensors, with other values in each for those ``changed`` that ``dims`` name."""

    def repeated(t: Tensor, dim: int | None, is_changed: bool) -> list[Tensor]:
        return [t, t.flip(0) if t.dim() else t + t, t * 0] if dim is not None and is_changed else [t, t, t]

    return [[*each] for each in zip(*map(repeated, tensors, dims, changed), strict=True)]


def cases(op: OpInfo, device: str, dtype: torch.dtype) -> Iterator[Any]:
    """Yield a function, its tensors with a batch dimension, these dimensions, and the results for the slices."""
    for sample in op.sample_inputs(device, dtype):
        function, tensors = on_tensors(op, [sample.input, *sample.args], sample.kwargs)
        for dims in dimensions(len(tensors), 0, -1):
            slices = sliced(tensors, dims, [True for _ in tensors])
            try:
                expected = [function(*each) for each in slices]
            except (RuntimeError, ValueError, IndexError):  # an index, for example, may have to be sorted
                slices = sliced(tensors, dims, [t.dtype == dtype for t in tensors])
                expected = [function(*each) for each in slices]
            columns = zip(zip(*slices, strict=True), dims, strict=True)
            batch = [three[0] if dim is None else torch.stack(three, dim) for three, dim in columns]
            yield function, batch, dims, expected


class TestVmap(TestCase):
    @in_one
    def test_vmap_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        torch._C._functorch._set_vmap_fallback_warning_enabled(False)
        self.addCleanup(torch._C._functorch._set_vmap_fallback_warning_enabled, True)
        for function, tensors, dims, expected in cases(op, device, dtype):
            try:
                result = torch.vmap(function, dims)(*tensors)
            except RuntimeError as error:
                if "could not generate a fallback" not in str(error):
                    raise
                reason = "no batching rule, and no loop in its place, because it returns something other than tensors"
                raise unittest.SkipTest(reason) from error
            for position, ours in enumerate(tensors_of(result)):
                self.assertEqual(ours, torch.stack([tensors_of(each)[position] for each in expected]))

    @each_of([info for info in OPERATORS if info.error_inputs_func], dtypes=OpDTypes.none)
    def test_errors_are_raised(self, device: str, op: OpInfo) -> None:
        torch._C._functorch._set_vmap_fallback_warning_enabled(False)
        self.addCleanup(torch._C._functorch._set_vmap_fallback_warning_enabled, True)
        for wrong in op.error_inputs(device):
            sample = wrong.sample_input
            function, tensors = on_tensors(op, [sample.input, *sample.args], sample.kwargs)
            for dims in dimensions(len(tensors), 0):
                batch = [t if dim is None else t.expand(2, *t.shape) for t, dim in zip(tensors, dims, strict=True)]
                with self.assertRaises((RuntimeError, TypeError, ValueError, IndexError), msg=f"in_dims={dims}"):
                    torch.vmap(function, dims)(*batch)


instantiate(globals(), TestVmap)


def test_index_that_must_be_sorted_stays_sorted() -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if not torch.equal(index, index.sort().values) or index[-1] != 2:
            raise RuntimeError("expected index to be sorted, and to end with 2")
        return x[index]

    def samples(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_kwargs: Any) -> list[SampleInput]:
        return [SampleInput(torch.randn(3, dtype=dtype, device=device), args=(torch.arange(3),))]

    info = OpInfo("indexed", op=function, dtypes=custom_types(torch.float), sample_inputs_func=samples)
    found = [*cases(info, "cpu", torch.float)]
    assert len(found) == len(dimensions(2, 0, -1))
    for _, (x, index), dims, expected in found:
        assert len(expected) == 3
        assert dims[0] is None or x.unique().numel() > 3
        assert dims[1] is None or torch.equal(index.movedim(dims[1], 0), torch.arange(3).expand(3, 3))
