"""Valid calls of the added operators: their samples, and the calls that these and their derivatives make."""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor, _added_operators
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..made_up import NoSamples, make_of
from ..samples import SAMPLES
from .tensors import Described

# Errors that a wrong argument may raise. c10's errors are RuntimeErrors.
PLAIN = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, OverflowError)

# A call: the arguments of an overload by name, tensors as descriptions.
Call = dict[str, Any]
Calls = defaultdict[str, list[Call]]

_KEPT = 40


def overload_of(name: str) -> torch._ops.OpOverload:
    """Return the overload called ``aten::name.overload``."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def made(call: Call) -> Call:
    """Return the call with tensors in place of their descriptions."""
    return {name: value.make() if isinstance(value, Described) else value for name, value in call.items()}


def valid_calls() -> dict[str, list[Call]]:
    """Return valid calls of each added overload; some have none."""
    found: Calls = defaultdict(list)
    torch.manual_seed(0)
    overloads = {name: overload_of(name) for name in _added_operators.OPERATORS}
    with _composites_noted(found), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for overload in overloads.values():
            if not overload._schema.is_mutable:
                for dtype in (torch.float32, torch.float64, torch.complex64, torch.int64):
                    with contextlib.suppress(NoSamples):
                        _call_samples(found, overload, dtype)
    for name, overload in overloads.items():
        if overload._schema.is_mutable:
            found[name] = _with_outputs(found[overload._schema.name.removesuffix("_")], overload)
    return {name: found[name] for name in overloads}


class _Recorder(TorchDispatchMode):
    """Notes calls of added operators."""

    def __init__(self, found: Calls) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        _note(self.found, func, args, kwargs or {})
        return result


@contextlib.contextmanager
def _composites_noted(found: Calls) -> Iterator[None]:
    """Note calls of added composite operators, which dispatch modes do not see."""

    def noting(overload: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
        result = overload.decompose(*args, **kwargs)
        _note(found, overload, args, kwargs)
        return result

    with torch.library._scoped_library("aten", "IMPL") as library:
        for name in _added_operators.OPERATORS:
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
                library.impl(overload_of(name), partial(noting, overload_of(name)), "AutogradCPU")
        yield


def _note(found: Calls, func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any]) -> None:
    name = str(func.name())
    if name in _added_operators.OPERATORS and len(found[name]) < _KEPT:
        given = {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}
        call = {a.name: given.get(a.name, a.default_value) for a in func._schema.arguments}
        described = lambda x: Described(tuple(x.shape), x.dtype, like=x.detach().clone())  # noqa: E731
        found[name].append(pytree.tree_map_only(Tensor, described, call))


def _call_samples(found: Calls, overload: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    """Call ``overload`` with the samples that it accepts. Differentiate twice, and forward over reverse."""

    def make(*shape: Any) -> Tensor:
        return make_of(*shape, dtype=dtype, device="cpu", requires_grad=True)

    for sample in SAMPLES.inputs(overload._schema.name.removeprefix("aten::"), make):
        arguments = (sample.input, *sample.args)
        # Samples of another overload, or of an unsupported dtype.
        with _Recorder(found), contextlib.suppress(*PLAIN):
            result = overload(*arguments, **sample.kwargs)
            for _ in range(2):
                result = _gradients(result, arguments)
            with fwAD.dual_level():
                moving = pytree.tree_map_only(Tensor, _moving, arguments)
                _gradients(overload(*moving, **sample.kwargs), moving)


def _gradients(result: Any, arguments: Any) -> Any:
    wanted, outputs = ([x for x in pytree.tree_leaves(given) if _is_variable(x)] for given in (arguments, result))
    total = sum(x.abs().square().sum() for x in outputs)
    return torch.autograd.grad(total, wanted, create_graph=True, allow_unused=True) if outputs else None


def _moving(x: Tensor) -> Tensor:
    """Add a tangent if the dtype supports it."""
    return fwAD.make_dual(x.detach().requires_grad_(), torch.randn_like(x)) if _is_variable(x) else x


def _is_variable(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _with_outputs(calls: list[Call], overload: torch._ops.OpOverload) -> list[Call]:
    """Return calls of the functional variant with outputs, which have the result's shape, or are empty."""
    function = overload_of(overload._schema.name.removesuffix("_"))
    names = [argument.name for argument in overload._schema.arguments if argument.is_out]
    valid = []
    for number, call in enumerate(calls):
        # If a mask omits a result, a tensor must be passed all the same.
        results = [torch.empty(0) if x is None else x for x in pytree.tree_leaves(function(**made(call)))]
        outs = [Described(tuple(x.shape) if number % 2 else (0,), x.dtype) for x in results]
        valid.append({**call, **dict(zip(names, outs, strict=False))})
    return valid
