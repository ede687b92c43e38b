"""Derivatives: test_ops_gradients.py and test_ops_fwd_gradients.py."""

from __future__ import annotations

import torch
from operators import DIFFERENTIABLE, FLOATING, QUIET, differentiable, instantiate
from torch.testing._internal.common_device_type import ops
from torch.testing._internal.common_utils import TestGradients
from torch.testing._internal.opinfo.core import OpInfo

pytestmark = QUIET


class TestBwdGradients(TestGradients):
    @differentiable
    def test_fn_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(device, dtype, op, op.get_op())

    @differentiable
    def test_fn_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, op.get_op(), "bwgrad_bwgrad")

    @ops([info for info in DIFFERENTIABLE if info.inplace_variant], allowed_dtypes=FLOATING)
    def test_inplace_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(device, dtype, op, self._get_safe_inplace(op.get_inplace()))

    @ops([info for info in DIFFERENTIABLE if info.inplace_variant], allowed_dtypes=FLOATING)
    def test_inplace_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, self._get_safe_inplace(op.get_inplace()), "bwgrad_bwgrad")


class TestFwdGradients(TestGradients):
    @ops([info for info in DIFFERENTIABLE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(
            device,
            dtype,
            op,
            op.get_op(),
            check_forward_ad=True,
            check_batched_forward_grad=op.check_batched_forward_grad,
        )

    @ops([info for info in DIFFERENTIABLE if info.supports_fwgrad_bwgrad], allowed_dtypes=FLOATING)
    def test_fn_fwgrad_bwgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, op.get_op(), "fwgrad_bwgrad")


instantiate(globals(), TestBwdGradients, TestFwdGradients)
