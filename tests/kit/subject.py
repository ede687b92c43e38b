"""An operator and what a surface needs to call it. What the operator has no variant for is skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from .opinfos import added_op_infos, left_out
from .samples import functional_overload, on_tensors

# PyTorch's own operators: with kernels, and composite.
KERNELS, COMPOSITES = ("lerp", "digamma"), ("outer", "nn.functional.conv2d")


@dataclass(frozen=True)
class Subject:
    """An operator of this torch.

    Args:
        name: its name below ``torch``: ``lerp``, ``fft.rfft2``.
        info: its OpInfo.
    """

    name: str
    info: OpInfo

    @property
    def function(self) -> Callable[..., Any]:
        """``torch.op``."""
        return self.info.op

    @property
    def method(self) -> Callable[..., Any]:
        """``Tensor.op``."""
        return self.info.method_variant or pytest.skip("no method")

    @property
    def in_place(self) -> Callable[..., Any]:
        """``Tensor.op_``."""
        return self.info.inplace_variant or pytest.skip("no in-place form")

    def out(self, *args: Any, out: Tensor, **kwargs: Any) -> Any:
        """``torch.op(..., out=...)``."""
        if not self.info.supports_out:
            pytest.skip("no out= form")
        return self.function(*args, out=out, **kwargs)

    @cached_property
    def aten_name(self) -> str:
        """Its name in native_functions.yaml, without an overload."""
        return str(self.info.aten_name)

    @cached_property
    def overload(self) -> torch._ops.OpOverload:
        """The overload that mutates no argument."""
        return functional_overload(self.aten_name)

    def has_kernel(self, key: str) -> bool:
        """Return whether a kernel is registered for a dispatch key."""
        return torch._C._dispatch_has_kernel_for_dispatch_key(self.overload.name(), key)

    @property
    def is_of_pytorch(self) -> bool:
        """Whether the added operators are compared with it."""
        return self.name in KERNELS + COMPOSITES

    @property
    def references(self) -> Sequence[Sequence[str]]:
        """PyTorch's own operators to compare with, those of the same kind first."""
        return (COMPOSITES, KERNELS) if self.has_kernel("CompositeImplicitAutograd") else (KERNELS,)

    def require_pointwise(self) -> None:
        """Skip the test unless the operator is elementwise."""
        if torch.Tag.pointwise not in self.overload.tags:
            pytest.skip("not pointwise")

    def sample(
        self, dtype: torch.dtype = torch.double, requires_grad: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments to call it with."""
        samples = list(self.info.sample_inputs("cpu", dtype, requires_grad=requires_grad))
        chosen = next((s for s in samples if isinstance(s.input, Tensor) and s.input.numel() > 1), samples[0])
        return [chosen.input, *chosen.args], dict(chosen.kwargs)

    def differentiable_sample(self) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments that require gradients, if it is differentiable."""
        return self.sample(requires_grad=self.info.supports_autograd)

    def on_tensors(
        self, form: Callable[..., Any] | None = None, **options: Any
    ) -> tuple[Callable[..., Any], list[Tensor]]:
        """Return a function of the sample's tensors only, and these tensors."""
        called = form or self.function
        return on_tensors(lambda *args, **kwargs: first_result(called(*args, **kwargs)), *self.sample(**options))

    def in_place_on_tensors(self, **options: Any) -> tuple[Callable[..., Any], list[Tensor]]:
        """Return a function of the sample's tensors that changes the first, and these tensors."""
        call, tensors = self.on_tensors(self.in_place, **options)
        if self.expected().shape != tensors[0].shape:
            pytest.skip("the sample broadcasts self")
        return call, tensors

    def differentiable(self, dtype: torch.dtype = torch.double) -> tuple[Callable[..., Any], list[Tensor]]:
        """Return a function of the sample's tensors, and these tensors, which require gradients if they can."""
        if not self.info.supports_autograd:
            pytest.skip("not differentiable")
        if dtype not in self.info.dtypes:
            pytest.skip(f"no {dtype}")
        return self.on_tensors(dtype=dtype, requires_grad=True)

    def gradients(self) -> tuple[Callable[..., Any], list[Tensor], list[Tensor], Sequence[Tensor]]:
        """Return a function of tensors, these, those of them that require gradients, and the gradients of its sum."""
        call, tensors = self.differentiable()
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        return call, tensors, wanted, torch.autograd.grad(call(*tensors).sum(), wanted)

    def expected(self, **options: Any) -> Any:
        """Return the result of a plain call with the sample."""
        call, tensors = self.on_tensors(**options)
        return call(*(tensor.detach().clone() for tensor in tensors))


def first_result(result: Any) -> Any:
    """Return the first of several results: the others may have no gradient."""
    return result[0] if isinstance(result, (tuple, list)) else result


def infos() -> dict[str, OpInfo]:
    """Return the first OpInfo of each operator, by its name below ``torch``; added ones come first."""
    return {info.name: info for info in reversed([*added_op_infos(), *op_db])}


def why_left_out(name: str) -> str:
    """Return why an operator cannot be called; empty if it can."""
    if name in infos():
        return ""
    why = left_out(name) if name in torch._added_operators.PUBLIC else "there is no such operator in op_db"
    return f"{why}; write `def {name.rpartition('.')[2]}(make)` into samples.py"
