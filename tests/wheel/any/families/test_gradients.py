"""Derivatives: test_ops_gradients.py and test_ops_fwd_gradients.py."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from opinfos import DIFFERENTIABLE, FLOATING, QUIET, TWICE_DIFFERENTIABLE, differentiable, each_of, instantiate
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_dtype import custom_types
from torch.testing._internal.common_utils import TestCase, gradcheck, gradgradcheck
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.kit.samples import on_tensors, with_differentiable_results

pytestmark = QUIET
IN_PLACE = [info for info in DIFFERENTIABLE if info.inplace_variant and info.supports_inplace_autograd]
FORWARD_OVER_BACKWARD = {
    "check_fwd_over_rev": True,
    "check_rev_over_rev": False,
    "check_batched_grad": False,
    "check_undefined_grad": False,
}


def calls(
    op: OpInfo, device: str, dtype: torch.dtype, is_in_place: bool
) -> Iterator[tuple[Callable[..., Any], tuple[Tensor, ...]]]:
    """Yield each sample's call as a function of its tensors, and these."""

    def in_place(first: Tensor, *args: Any, **kwargs: Any) -> Any:
        return op.get_inplace()(first.clone(), *args, **kwargs)

    function = partial(op.gradcheck_wrapper, in_place if is_in_place else op.get_op())
    are_conjugated = op.test_conjugated_samples and dtype.is_complex
    for sample in op.sample_inputs(device, dtype, requires_grad=True, include_conjugated_inputs=are_conjugated):
        if not (is_in_place and sample.broadcasts_input):
            call, tensors = on_tensors(function, [sample.input, *sample.args], sample.kwargs)
            process = sample.output_process_fn_grad
            yield lambda *given, call=call, process=process: process(call(*given)), tuple(tensors)


class TestGradients(TestCase):
    """The checks of PyTorch's TestGradients, which finds no tensors in a list unless it is the first argument."""

    def options(self, op: OpInfo) -> dict[str, Any]:
        return {
            "check_grad_dtypes": True,
            "nondet_tol": op.gradcheck_nondet_tol,
            "fast_mode": op.gradcheck_fast_mode,
        }

    def check(self, op: OpInfo, device: str, dtype: torch.dtype, is_in_place: bool = False, **options: Any) -> None:
        given = {**self.options(op), "check_batched_grad": op.check_batched_grad, "check_undefined_grad": True}
        for function, tensors in calls(op, device, dtype, is_in_place):
            self.assertTrue(gradcheck(function, tensors, **{**given, **options}))

    def check_twice(
        self, op: OpInfo, device: str, dtype: torch.dtype, is_in_place: bool = False, **options: Any
    ) -> None:
        given = {**self.options(op), "check_batched_grad": op.check_batched_gradgrad, **options}
        for (function, tensors), strided in itertools.product(calls(op, device, dtype, is_in_place), (False, True)):
            self.assertTrue(gradgradcheck(function, tensors, gen_non_contig_grad_outputs=strided, **given))


class TestBwdGradients(TestGradients):
    @differentiable
    def test_fn_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.check(op, device, dtype)

    @each_of(TWICE_DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=FLOATING)
    def test_fn_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.check_twice(op, device, dtype)

    @each_of(IN_PLACE, allowed_dtypes=FLOATING)
    def test_inplace_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.check(op, device, dtype, is_in_place=True)

    @each_of([info for info in IN_PLACE if info.supports_gradgrad], allowed_dtypes=FLOATING)
    def test_inplace_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.check_twice(op, device, dtype, is_in_place=True)


class TestMissingGradients(TestGradients):
    """If an OpInfo says that a derivative does not exist, the samples raise an error."""

    @each_of([info for info in DIFFERENTIABLE if not info.supports_gradgrad], allowed_dtypes=FLOATING)
    def test_fn_gradgrad_is_refused(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        with self.assertRaisesRegex((RuntimeError, GradcheckError), "."):
            self.check_twice(op, device, dtype)

    @each_of([info for info in DIFFERENTIABLE if not info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_mode_AD_is_refused(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        with self.assertRaisesRegex(NotImplementedError, "forward AD"):
            self.check(op, device, dtype, check_forward_ad=True)


class TestFwdGradients(TestGradients):
    @each_of([info for info in DIFFERENTIABLE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        batched = {"check_batched_forward_grad": op.check_batched_forward_grad}
        self.check(op, device, dtype, check_forward_ad=True, **batched)

    @each_of([info for info in IN_PLACE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_inplace_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.check(op, device, dtype, is_in_place=True, check_forward_ad=True)

    @each_of([info for info in DIFFERENTIABLE if info.supports_fwgrad_bwgrad], allowed_dtypes=FLOATING)
    def test_fn_fwgrad_bwgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.check_twice(op, device, dtype, **FORWARD_OVER_BACKWARD)


instantiate(globals(), TestBwdGradients, TestMissingGradients, TestFwdGradients)


def test_the_tensors_of_any_list_are_found() -> None:
    x, y, z, w = (torch.tensor(float(number)) for number in range(4))
    call, found = on_tensors(
        lambda first, others, scale, *, more: (first, others, scale, more), [x, [y, z], 2], {"more": (w,)}
    )
    assert [float(each) for each in found] == [0, 1, 2, 3]
    assert call(w, z, y, x) == (w, [z, y], 2, (x,))


def test_results_without_a_derivative_are_not_differentiated() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), x.detach().cos()

    def samples(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_kwargs: Any) -> list[SampleInput]:
        sample = SampleInput(torch.randn(3, dtype=dtype, device=device, requires_grad=requires_grad))
        return [with_differentiable_results(function, sample)]

    dtypes = custom_types(torch.double)
    info = OpInfo("of_two", op=function, dtypes=dtypes, sample_inputs_func=samples, check_batched_grad=False)
    TestGradients().check(info, "cpu", torch.double, check_forward_ad=True)
    TestGradients().check_twice(info, "cpu", torch.double)
    TestGradients().check_twice(info, "cpu", torch.double, **FORWARD_OVER_BACKWARD)
