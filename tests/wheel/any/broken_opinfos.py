"""A pytest plugin that adds OpInfos with wrong statements to op_db, for test_families.py."""

import unittest
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.testing._internal.common_dtype import floating_types_and
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo, ErrorInput, OpInfo, SampleInput

from tests.kit.opinfos import added_op_infos

# The tests that fail for each OpInfo, without the ends of their names.
FAILING = {
    "right": set(),
    "without_bfloat16": {"test_dtypes", "test_reference", "test_variant_consistency_eager", "test_schema_correctness"},
    "with_another_dtype": {"test_dtypes"},
    "of_wrong_value": {"test_reference"},
    "that_refuses_nothing": {"test_errors"},
    "without_backward": {"test_dtypes", "test_fn_grad", "test_fn_gradgrad", "test_forward_mode_AD"},
    "without_forward_ad": {"test_forward_mode_AD"},
    "with_forward_ad": {"test_forward_mode_AD_is_refused"},
    "without_double_backward": {"test_fn_gradgrad"},
    "right_without_double_backward": set(),
    "with_double_backward": {"test_fn_gradgrad_is_refused"},
    "skipped": set(),
}


class Twice(torch.autograd.Function):
    """Return twice its input. It has no derivative in forward mode."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        return 2 * grad


class Once(Twice):
    """Its backward has no derivative."""

    @staticmethod
    @once_differentiable
    def backward(context: Any, grad: Tensor) -> Tensor:
        return 2 * grad

    @staticmethod
    def jvp(context: Any, tangent: Tensor) -> Tensor:
        return 2 * tangent


def right(x: Tensor) -> Tensor:
    if x.dim() == 0 or not x.is_floating_point():
        raise RuntimeError("expected x to have a dimension and a floating-point dtype")
    return 2 * x


def without_bfloat16(x: Tensor) -> Tensor:
    if x.dtype == torch.bfloat16:
        raise RuntimeError('"twice_cpu" not implemented for BFloat16')
    return right(x)


def with_another_dtype(x: Tensor) -> Tensor:
    return 2 * x if x.dtype == torch.int64 else right(x)


def of_wrong_value(x: Tensor) -> Tensor:
    return 1.02 * right(x)


def that_refuses_nothing(x: Tensor) -> Tensor:
    return 2 * x if x.is_floating_point() else right(x)


def without_backward(x: Tensor) -> Tensor:
    return right(x.detach())


def without_forward_ad(x: Tensor) -> Tensor:
    right(x)
    return Twice.apply(x)


def without_double_backward(x: Tensor) -> Tensor:
    right(x)
    return Once.apply(x)


with_forward_ad = with_double_backward = right
right_without_double_backward = without_double_backward
skipped = of_wrong_value


def sample_inputs(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **_kwargs: Any) -> list[SampleInput]:
    return [SampleInput(torch.arange(1, 4, device=device).to(dtype).requires_grad_(requires_grad))]


def error_inputs(_: OpInfo, device: str, **_kwargs: Any) -> Iterator[ErrorInput]:
    yield ErrorInput(SampleInput(torch.ones((), device=device)), error_regex="to have a dimension")


def info(name: str) -> OpInfo:
    function: Callable[..., Any] = globals()[name]
    return OpInfo(
        name,
        op=function,
        aten_name="mul",
        ref=lambda x: 2 * np.asarray(x),
        dtypes=floating_types_and(torch.half, torch.bfloat16),
        sample_inputs_func=sample_inputs,
        error_inputs_func=error_inputs,
        supports_out=False,
        supports_forward_ad=name != "with_forward_ad",
        supports_gradgrad=name not in ("with_double_backward", "right_without_double_backward"),
        skips=(DecorateInfo(unittest.skip("1.02 times"), "TestCommon", "test_reference"),) if name == "skipped" else (),
        check_batched_grad=False,
        check_batched_gradgrad=False,
        check_batched_forward_grad=False,
    )


broken = [info(name) for name in FAILING]
added_op_infos().extend(broken)
op_db += broken
