"""Formulas and composite kernels with tensor subclasses: test_ops.py."""

import torch
from opinfos import DIFFERENTIABLE, FLOATING, QUIET, differentiable, each_of, in_one, instantiate
from torch.testing._internal import composite_compliance
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

pytestmark = QUIET


class TestCompositeCompliance(TestCase):
    @in_one
    def test_operator(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            args = [sample.input, *sample.args]
            composite_compliance.check_with_mode(op, args, sample.kwargs, self.assertEqual)
            composite_compliance.check_all_permutations(op, args, sample.kwargs, self.assertEqual)

    @differentiable
    def test_backward(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            args = [sample.input, *sample.args]
            composite_compliance.check_backward_formula(
                op.get_op(), args, sample.kwargs, sample.output_process_fn_grad, op.gradcheck_wrapper, self.assertEqual
            )

    @each_of([info for info in DIFFERENTIABLE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_ad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            args = [sample.input, *sample.args]
            composite_compliance.check_forward_ad_formula(
                op.get_op(), args, sample.kwargs, op.gradcheck_wrapper, self.assertEqual
            )


instantiate(globals(), TestCompositeCompliance)
