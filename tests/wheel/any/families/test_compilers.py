"""AOTAutograd, Inductor and opcheck: functorch's test_aotdispatch.py, inductor's test_torchinductor_opinfo.py."""

from itertools import islice
from typing import Any

import pytest
import torch
import torch._inductor.config
from opinfos import OPERATORS, QUIET, called, each_of, gradients, in_one, instantiate
from torch import Tensor
from torch.library import opcheck
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo
from torch.testing._internal.optests import aot_autograd_check

pytestmark = QUIET

# The number of samples of each operator that Inductor compiles.
SAMPLES = 2


class TestEagerFusionOpInfo(TestCase):
    @in_one
    def test_aot_autograd_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """With static shapes; opcheck does the same with dynamic ones."""
        is_differentiable = op.supports_autograd and dtype.is_floating_point
        for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
            given = [sample.input, *sample.args]
            aot_autograd_check(op, given, sample.kwargs, False, check_gradients=is_differentiable)


@pytest.mark.unsanitized("Inductor compiles for each sample")
class TestInductorOpInfo(TestCase):
    @torch._inductor.config.patch(implicit_fallbacks=False)
    @in_one
    def test_comprehensive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        is_differentiable = op.supports_autograd and dtype.is_floating_point
        # In one graph: each runs the C++ compiler.
        samples = islice(op.sample_inputs(device, dtype, requires_grad=is_differentiable), SAMPLES)
        given = [(sample.input, sample.args, sample.kwargs) for sample in samples]

        def every(given: list[Any]) -> list[Any]:
            return [op.get_op()(first, *args, **kwargs) for first, args, kwargs in given]

        torch._dynamo.reset()
        results, expected = torch.compile(every, fullgraph=True)(given), every(given)
        self.assertEqual(results, expected)
        if is_differentiable:
            self.assertEqual(gradients(results, given), gradients(expected, given))


class TestOpcheck(TestCase):
    @in_one
    def test_opcheck(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        is_differentiable = op.supports_autograd and dtype.is_floating_point
        for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
            opcheck_overload(op.aten_name, (sample.input, *sample.args), sample.kwargs)

    @each_of([info for info in OPERATORS if info.inplace_variant or info.supports_out], dtypes=OpDTypes.any_one)
    def test_opcheck_of_variants(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            args, result = (sample.input, *sample.args), called(op, sample)
            fits = isinstance(result, Tensor) and (result.shape, result.dtype) == (sample.input.shape, dtype)
            if op.inplace_variant and fits and not sample.broadcasts_input:
                opcheck_overload(f"{op.aten_name}_", args, sample.kwargs)
            if op.supports_out and isinstance(result, Tensor):
                opcheck_overload(op.aten_name, args, {**sample.kwargs, "out": torch.empty_like(result)})


def opcheck_overload(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check the overload that a call selects."""
    overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    opcheck(getattr(getattr(torch.ops.aten, name), overload or "default"), args, kwargs)


instantiate(globals(), TestEagerFusionOpInfo, TestInductorOpInfo, TestOpcheck)
