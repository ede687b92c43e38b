"""An operator and what a surface needs to call it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from ..opinfos import added_op_infos, left_out
from ..samples import functional_overload


class NotThere(Exception):
    """The operator has no such variant, according to its schema, so there is nothing to compare."""


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
        function: Callable[..., Any] = self.info.op
        return function

    @property
    def method(self) -> Callable[..., Any]:
        """``Tensor.op``."""
        return self._form(self.info.method_variant, "method")

    @property
    def in_place(self) -> Callable[..., Any]:
        """``Tensor.op_``."""
        return self._form(self.info.inplace_variant, "in-place form")

    @staticmethod
    def _form(form: Any, what: str) -> Callable[..., Any]:
        if form is None:
            raise NotThere(f"no {what}")
        found: Callable[..., Any] = form
        return found

    @cached_property
    def aten_name(self) -> str:
        """Its name in native_functions.yaml, without an overload."""
        return str(self.info.aten_name)

    @cached_property
    def overload(self) -> torch._ops.OpOverload:
        """The overload that mutates no argument."""
        return functional_overload(self.aten_name)

    @property
    def is_pointwise(self) -> bool:
        """Whether it is elementwise."""
        return torch.Tag.pointwise in self.overload.tags

    @property
    def is_composite(self) -> bool:
        """Whether it is a composite of other operators, which autograd and tracing see in its place."""
        return self.has_kernel("CompositeImplicitAutograd")

    def has_kernel(self, key: str) -> bool:
        """Return whether a kernel is registered for a dispatch key."""
        return torch._C._dispatch_has_kernel_for_dispatch_key(self.overload.name(), key)

    def require_gradient(self) -> None:
        """Check that the operator is differentiable.

        Raises:
            NotThere: it is not, according to its OpInfo.
        """
        if not self.info.supports_autograd:
            raise NotThere("not differentiable")

    def sample(
        self, dtype: torch.dtype = torch.double, requires_grad: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments to call it with."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(self.info.sample_inputs("cpu", dtype, requires_grad=requires_grad))
        chosen = next((s for s in samples if isinstance(s.input, Tensor) and s.input.numel() > 1), samples[0])
        return [chosen.input, *chosen.args], dict(chosen.kwargs)

    def on_tensors(
        self, form: Callable[..., Any] | None = None, **options: Any
    ) -> tuple[Callable[..., Any], list[Tensor]]:
        """Return a function of the sample's tensors only, and these tensors."""
        args, kwargs = self.sample(**options)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        called = form or self.function

        def call(*tensors: Tensor) -> Any:
            values = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            given, named = pytree.tree_unflatten(values, spec)
            return first_result(called(*given, **named))

        return call, [leaves[place] for place in places]

    def expected(self, **options: Any) -> Any:
        """Return the result of a plain call with the sample."""
        call, tensors = self.on_tensors(**options)
        return call(*(tensor.detach().clone() for tensor in tensors))


def first_result(result: Any) -> Any:
    """Return the first of several results: the others may have no gradient."""
    return result[0] if isinstance(result, (tuple, list)) else result


def subjects(names: list[str]) -> tuple[list[Subject], list[str]]:
    """Return the operators with these names below ``torch``, and reasons for those without OpInfo or samples."""
    infos: dict[str, OpInfo] = {}
    for info in [*added_op_infos(), *op_db]:
        infos.setdefault(info.name, info)
    without = [f"{name}: {_why_not(name)}" for name in names if name not in infos]
    return [Subject(name, infos[name]) for name in names if name in infos], without


def _why_not(name: str) -> str:
    """Return why there is no OpInfo."""
    why = left_out(name) if name in torch._added_operators.PUBLIC else "there is no such operator in op_db"
    return f"{why}; write `def {name.rpartition('.')[2]}(make)` into samples.py"
