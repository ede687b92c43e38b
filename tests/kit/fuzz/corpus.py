"""Valid calls of the added operators: their samples, and the calls made by these."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor, _added_operators
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..samples import SAMPLES, NoSamples, make_of
from .tensors import Described

# Errors that a wrong argument may raise. c10's errors are RuntimeErrors.
PLAIN = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, OverflowError)

# A call: the arguments of an overload by name, tensors as descriptions.
Call = dict[str, Any]

_KEPT = 40


def overloads() -> list[torch._ops.OpOverload]:
    """Return every added overload."""
    return [overload_of(name) for name in _added_operators.OPERATORS]


def overload_of(name: str) -> torch._ops.OpOverload:
    """Return the overload called ``aten::name.overload``."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


class _Recorder(TorchDispatchMode):
    """Records calls of added operators, except for composite ones."""

    def __init__(self, found: dict[str, list[Call]]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        note(self.found, func, args, kwargs or {})
        return result


@contextlib.contextmanager
def composites_recorded(found: dict[str, list[Call]]) -> Iterator[None]:
    """Record calls of added composite operators, which dispatch modes do not see."""

    def noting(overload: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
        result = overload.decompose(*args, **kwargs)
        note(found, overload, args, kwargs)
        return result

    library = torch.library.Library("aten", "IMPL")
    try:
        for overload in overloads():
            if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"):
                library.impl(overload, functools.partial(noting, overload), "AutogradCPU")
        yield
    finally:
        library._destroy()


def note(found: dict[str, list[Call]], func: torch._ops.OpOverload, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Add a call to ``found`` if it calls an added operator."""
    name = str(func.name())
    if name in _added_operators.OPERATORS and len(found[name]) < _KEPT:
        given = {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}
        call = {a.name: given.get(a.name, a.default_value) for a in func._schema.arguments}
        found[name].append(pytree.tree_map_only(Tensor, described, call))


def described(x: Tensor) -> Described:
    """Describe a tensor of a valid call."""
    return Described(tuple(x.shape), x.dtype, like=x.detach().clone(), requires_grad=x.requires_grad)


def right_calls() -> dict[str, list[Call]]:
    """Return valid calls of each overload; some overloads have none."""
    found: dict[str, list[Call]] = defaultdict(list)
    torch.manual_seed(0)
    functional = [overload for overload in overloads() if not overload._schema.is_mutable]
    with composites_recorded(found), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for overload in functional:
            for dtype in (torch.float32, torch.float64, torch.complex64, torch.int64):
                with contextlib.suppress(NoSamples):
                    _record(found, overload, dtype)
    for overload in overloads():
        if overload._schema.is_mutable:
            found[str(overload.name())] = _borrowed(found, overload)
    return dict(found)


def _record(found: dict[str, list[Call]], overload: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    """Call ``overload`` with the samples that it accepts, and differentiate the results."""

    def make(*shape: Any) -> Tensor:
        return make_of(*shape, dtype=dtype, device="cpu", requires_grad=True)

    for sample in SAMPLES.inputs(overload._schema.name.removeprefix("aten::"), make):
        # Samples of another overload, or of an unsupported dtype.
        with _Recorder(found), contextlib.suppress(*PLAIN):
            _differentiate(overload, sample)


def _differentiate(overload: torch._ops.OpOverload, sample: Any) -> None:
    """Differentiate twice in reverse mode, in forward mode, and forward over reverse."""
    result = overload(sample.input, *sample.args, **sample.kwargs)
    wanted = [x for x in pytree.tree_leaves((sample.input, sample.args)) if is_differentiable(x)]
    for _ in range(2):
        result = _gradients(result, wanted)
    with fwAD.dual_level(), contextlib.suppress(NotImplementedError):
        given = pytree.tree_map_only(Tensor, _moving, (sample.input, sample.args))
        moving = [x for x in pytree.tree_leaves(given) if is_differentiable(x)]
        _gradients(overload(given[0], *given[1], **sample.kwargs), moving)


def _gradients(result: Any, wanted: list[Tensor]) -> Any:
    outputs = [x for x in pytree.tree_leaves(result) if is_differentiable(x)]
    if not outputs:
        return None
    total = sum(x.abs().square().sum() for x in outputs)
    return torch.autograd.grad(total, wanted, create_graph=True, allow_unused=True)


def _moving(x: Tensor) -> Tensor:
    """Add a tangent if the dtype supports it."""
    if not is_differentiable(x):
        return x
    return fwAD.make_dual(x.detach().requires_grad_(), torch.randn_like(x))


def is_differentiable(x: Any) -> bool:
    """Return whether a gradient with respect to ``x`` can be requested."""
    return isinstance(x, Tensor) and x.requires_grad


def _borrowed(found: Mapping[str, list[Call]], overload: torch._ops.OpOverload) -> list[Call]:
    """Yield calls derived from those of the functional variant: outputs have the result's shape, or are empty."""
    base = overload._schema.name.removesuffix("_")
    calls = []
    for number, call in enumerate(found.get(base, [])):
        given = {name: value.make() if isinstance(value, Described) else value for name, value in call.items()}
        results = pytree.tree_leaves(overload_of(base)(**given))
        names = [argument.name for argument in overload._schema.arguments if argument.is_out]
        outs = [_receiver(x, has_shape=number % 2 == 1) for x in results]
        calls.append({**call, **dict(zip(names, outs, strict=False))})
    return calls


def _receiver(result: Tensor | None, has_shape: bool) -> Described:
    """Return a tensor for ``result``. If a mask omits the result, a tensor must be passed all the same."""
    if result is None:
        return Described((0,), torch.float32)
    return Described(tuple(result.shape) if has_shape else (0,), result.dtype)
