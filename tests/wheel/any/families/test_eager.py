"""Variants, layouts, dtypes, tags and schemas: test_ops.py and test_schema_check.py."""

import itertools
from collections.abc import Callable, Iterable

import torch
from opinfos import OPERATORS, QUIET, REFERENCED, called, each_of, in_one, instantiate, tensors_of
from torch import Tensor
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from tests.kit.samples import reference_results

pytestmark = QUIET


class TestCommon(TestCase):
    @each_of(OPERATORS, dtypes=OpDTypes.supported)
    def test_variant_consistency_eager(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            expected = called(op.get_op(), sample)
            for variant in (op.get_method(), op.get_inplace()):
                is_inplace = variant is op.get_inplace()
                if variant is None or (is_inplace and sample.broadcasts_input):
                    continue
                first = sample.input.clone() if is_inplace else sample.input
                if is_inplace and (first.shape, first.dtype) != (expected.shape, expected.dtype):
                    continue
                result = variant(first, *sample.args, **sample.kwargs)
                self.assertEqual(result, expected)
                if is_inplace:
                    self.assertIs(result, first)

    # Upstream does the same: in half types, another order of additions gives another sum.
    @each_of(OPERATORS, allowed_dtypes=(torch.float32, torch.int64, torch.complex64))
    def test_noncontiguous_samples(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            self.assertEqual(called(op, sample.noncontiguous()), called(op, sample))

    @each_of([info for info in OPERATORS if info.supports_out], dtypes=OpDTypes.any_one)
    def test_out(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            expected = called(op, sample)
            if not isinstance(expected, Tensor):
                outs = tuple(torch.empty_like(each) for each in expected)
                op(sample.input, *sample.args, **sample.kwargs, out=outs)
                self.assertEqual(outs, tuple(expected))
                continue
            outputs = [
                torch.empty_like(expected),
                torch.empty(0, dtype=expected.dtype),
                torch.empty(2 * expected.numel(), dtype=expected.dtype)[::2].view(expected.shape),
            ]
            for out in outputs:
                pointer, strides = out.data_ptr(), out.stride()
                result = op(sample.input, *sample.args, **sample.kwargs, out=out)
                self.assertIs(result, out)
                self.assertEqual(out, expected)
                if out.numel() and out is not outputs[1]:
                    self.assertEqual((out.data_ptr(), out.stride()), (pointer, strides))
            resized = torch.empty(expected.numel() + 1, dtype=expected.dtype)
            with self.assertWarnsRegex(UserWarning, "An output with one or more elements was resized"):
                op(sample.input, *sample.args, **sample.kwargs, out=resized)
            self.assertEqual(resized, expected)
            if expected.dtype.is_floating_point:
                wrong = torch.empty_like(expected, dtype=torch.long)
                with self.assertRaises(
                    RuntimeError, msg="out= of a dtype that cannot hold the result is to be refused"
                ):
                    op(sample.input, *sample.args, **sample.kwargs, out=wrong)

    @each_of(REFERENCED, dtypes=OpDTypes.supported)
    def test_reference(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """Values and dtypes, as in test_numpy_ref, for each dtype."""
        for sample in op.sample_inputs(device, dtype):
            expected = reference_results(op.ref, sample.input, *sample.args, **sample.kwargs)
            for result, wide in zip(tensors_of(called(op, sample)), expected, strict=True):
                self.assertEqual(result, as_precise(wide, dtype))

    @each_of([info for info in OPERATORS if info.error_inputs_func], dtypes=OpDTypes.none)
    def test_errors(self, device: str, op: OpInfo) -> None:
        for wrong in op.error_inputs(device):
            with self.assertRaisesRegex(wrong.error_type, wrong.error_regex):
                called(op, wrong.sample_input)

    @each_of(OPERATORS, dtypes=OpDTypes.none)
    def test_dtypes(self, device: str, op: OpInfo) -> None:
        """Samples of the stated dtypes work, forward and backward, and no others do."""
        forward, backward = set(), set()
        for dtype in all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16):
            is_differentiable = dtype.is_floating_point or dtype.is_complex
            try:
                for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
                    called(op, sample)
            except (RuntimeError, TypeError, ValueError, NotImplementedError):
                continue
            forward.add(dtype)
            try:
                for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
                    results = [result for result in tensors_of(called(op, sample)) if result.requires_grad]
                    torch.autograd.backward(results, [torch.randn_like(result) for result in results])
                    backward |= {dtype} if results else set()
            except (RuntimeError, NotImplementedError):
                backward.discard(dtype)
        device_type = torch.device(device).type
        differentiable = op.supported_backward_dtypes(device_type) if op.supports_autograd else set()
        for found, stated, what in (
            (forward, op.supported_dtypes(device_type), "forward"),
            (backward, differentiable, "backward"),
        ):
            lacking, failing = _names(found - stated), _names(stated - found)
            said = f"OPINFO in samples.py lacks dtypes that work {what}: {lacking}; states dtypes that fail: {failing}"
            self.assertEqual(found, stated, said)


def as_precise(expected: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a reference's result to the precision expected for tensors of ``dtype``.

    For integers and booleans the operator returns floating-point values of the default dtype.
    """
    if not (expected.is_floating_point() or expected.is_complex()):
        return expected
    precision = dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
    if expected.is_complex() == precision.is_complex:
        return expected.to(precision)
    return expected.to(precision.to_complex() if expected.is_complex() else precision.to_real())


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)) or "none"


class TestMathBits(TestCase):
    @each_of([info for info in OPERATORS if torch.cdouble in info.dtypes], allowed_dtypes=(torch.cdouble,))
    def test_conj_and_neg_views(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        views: list[Callable[[Tensor], Tensor]] = []
        if op.test_conjugated_samples:
            views.append(lambda t: torch.conj_physical(t).conj())
        if op.test_neg_view:
            views.append(lambda t: torch._neg_view(-t))
        if op.test_conjugated_samples and op.test_neg_view:
            views.append(lambda t: torch._neg_view(-torch.conj_physical(t)).conj())
        for sample, view in itertools.product(op.sample_inputs(device, dtype), views):
            viewed = sample.transform(lambda t, view=view: view(t) if isinstance(t, Tensor) else t)
            self.assertEqual(called(op, viewed), called(op, sample))


class TestTags(TestCase):
    @in_one
    def test_tags(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        packet = getattr(torch.ops.aten, op.aten_name)
        for name in packet.overloads():
            self.assertIn(torch.Tag.pt2_compliant_tag, getattr(packet, name).tags)


class TestSchemaCheck(TestCase):
    @each_of(OPERATORS, dtypes=OpDTypes.supported)
    def test_schema_correctness(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        with SchemaCheckMode():
            for sample in op.sample_inputs(device, dtype):
                called(op, sample)


instantiate(globals(), TestCommon, TestMathBits, TestTags, TestSchemaCheck)
