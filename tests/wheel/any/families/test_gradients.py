"""Derivatives: test_ops_gradients.py and test_ops_fwd_gradients.py."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from opinfos import (
    DIFFERENTIABLE,
    FLOATING,
    QUIET,
    TWICE_DIFFERENTIABLE,
    differentiable,
    each_of,
    instantiate,
    tensors_of,
)
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_dtype import custom_types
from torch.testing._internal.common_utils import TestGradients
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from tests.kit.samples import with_differentiable_results

pytestmark = QUIET
IN_PLACE = [info for info in DIFFERENTIABLE if info.inplace_variant and info.supports_inplace_autograd]


def checkable(op: OpInfo) -> tuple[OpInfo, Callable[..., Any]]:
    """Return the operator and its function, with samples for which PyTorch's helper checks exactly the gradients.

    The helper puts tensors back into any list, but searches only the first argument's.
    """
    function = op.get_op()

    def sample_inputs(*args: Any, **kwargs: Any) -> Iterator[SampleInput]:
        for sample in op.sample_inputs(*args, **kwargs):
            yield spread_sample(sample)

    @functools.wraps(function)
    def gathered(first: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], pytree.TreeSpec):
            args, kwargs = pytree.tree_unflatten(list(args[1:]), args[0])
        return function(first, *args, **kwargs)

    result = copy.copy(op)
    result.sample_inputs = sample_inputs
    return result, gathered


def spread_sample(sample: SampleInput) -> SampleInput:
    given = [*sample.args, *sample.kwargs.values()]
    if not any(isinstance(each, (list, tuple)) and tensors_of(each) for each in given):
        return sample
    leaves, structure = pytree.tree_flatten((sample.args, sample.kwargs))
    return SampleInput(sample.input, args=(structure, *leaves), output_process_fn_grad=sample.output_process_fn_grad)


class TestBwdGradients(TestGradients):
    @differentiable
    def test_fn_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(device, dtype, *checkable(op))

    @each_of(TWICE_DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=FLOATING)
    def test_fn_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, *checkable(op), "bwgrad_bwgrad")

    @each_of(IN_PLACE, allowed_dtypes=FLOATING)
    def test_inplace_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(device, dtype, op, self._get_safe_inplace(op.get_inplace()))

    @each_of([info for info in IN_PLACE if info.supports_gradgrad], allowed_dtypes=FLOATING)
    def test_inplace_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, self._get_safe_inplace(op.get_inplace()), "bwgrad_bwgrad")


class TestMissingGradients(TestGradients):
    """If an OpInfo says that a derivative does not exist, the samples raise an error."""

    @each_of([info for info in DIFFERENTIABLE if not info.supports_gradgrad], allowed_dtypes=FLOATING)
    def test_fn_gradgrad_is_refused(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        with self.assertRaisesRegex((RuntimeError, GradcheckError), "."):
            self._check_helper(device, dtype, *checkable(op), "bwgrad_bwgrad")

    @each_of([info for info in DIFFERENTIABLE if not info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_mode_AD_is_refused(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        with self.assertRaisesRegex(NotImplementedError, "forward AD"):
            self._grad_test_helper(
                device, dtype, *checkable(op), check_forward_ad=True, check_batched_forward_grad=False
            )


class TestFwdGradients(TestGradients):
    @each_of([info for info in DIFFERENTIABLE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(
            device,
            dtype,
            *checkable(op),
            check_forward_ad=True,
            check_batched_forward_grad=op.check_batched_forward_grad,
        )

    @each_of([info for info in IN_PLACE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_inplace_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        in_place = self._get_safe_inplace(op.get_inplace())
        self._grad_test_helper(device, dtype, op, in_place, check_forward_ad=True)

    @each_of([info for info in DIFFERENTIABLE if info.supports_fwgrad_bwgrad], allowed_dtypes=FLOATING)
    def test_fn_fwgrad_bwgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, *checkable(op), "fwgrad_bwgrad")


instantiate(globals(), TestBwdGradients, TestMissingGradients, TestFwdGradients)


class Wrong(torch.autograd.Function):
    """The identity with a wrong gradient."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        return 2 * grad


@pytest.mark.parametrize("is_right", [True, False])
def test_the_tensors_of_any_list_are_differentiated(is_right: bool) -> None:
    def function(first: Tensor, others: list[Tensor], scale: int, *, more: tuple[Tensor, ...]) -> Tensor:
        product = first * others[0] if is_right else first * Wrong.apply(others[0])
        return scale * product * others[1] + more[0]

    def samples(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_kwargs: Any) -> list[SampleInput]:
        x, y, z, w = (torch.randn(3, dtype=dtype, device=device, requires_grad=requires_grad) for _ in range(4))
        return [SampleInput(x, args=([y, z], 2), kwargs={"more": (w,)})]

    dtypes = custom_types(torch.double)
    info = OpInfo("of_lists", op=function, dtypes=dtypes, sample_inputs_func=samples, check_batched_grad=False)
    family = TestGradients()
    with contextlib.nullcontext() if is_right else pytest.raises(GradcheckError):
        family._check_helper("cpu", torch.double, *checkable(info), "gradcheck", check_batched_grad=False)


def test_results_without_a_derivative_are_not_differentiated() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.detach().cos()

    def samples(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_kwargs: Any) -> list[SampleInput]:
        sample = SampleInput(torch.randn(3, dtype=dtype, device=device, requires_grad=requires_grad))
        return [with_differentiable_results(function, sample)]

    dtypes = custom_types(torch.double)
    info = OpInfo("of_two", op=function, dtypes=dtypes, sample_inputs_func=samples, check_batched_grad=False)
    for which in ("gradcheck", "bwgrad_bwgrad", "fwgrad_bwgrad"):
        is_forward = which == "gradcheck"
        TestGradients()._check_helper("cpu", torch.double, *checkable(info), which, check_forward_ad=is_forward)
