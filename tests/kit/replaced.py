"""What native folders replace of PyTorch's own operators: which of ``op_db`` use it, and how their results differ.

``DIFFERS`` in ``samples.py`` states, by the name of the OpInfo, why the results of an operator differ on purpose. The
operators that call it may differ, too.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, _graft
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode

from .made_up import tensors_of

# In trampolines.cpp.
_CALLED = "a replaced kernel was called"
# Samples of each dtype that tell whether an operator calls something.
_TRIED = 2


@functools.cache
def replaced() -> dict[str, list[str]]:
    """Return what is replaced in this torch, by the name of the operator or dispatch stub."""
    return {name: what for note in _graft.notes() for name, what in note.get("replaced", {}).items()}


@functools.cache
def replaced_op_infos() -> list[OpInfo]:
    """Return PyTorch's OpInfos of the operators that are replaced in part, and of those that call them or a replaced
    kernel of a dispatch stub.
    """
    operators = {name.partition(".")[0].removesuffix("_").removesuffix("_backward") for name in replaced()}
    named = [info for info in op_db if operators & {info.aten_name, info.name.rpartition(".")[2]}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        callers = [info for info in op_db if info not in named and _calls(info, operators, _failing)]
    return [*named, *callers]


def may_differ(info: OpInfo, differs: Collection[str]) -> bool:
    """Return whether ``DIFFERS`` names an OpInfo, or one of the operators that it calls."""
    operators = {each.aten_name for each in op_db if each.name in differs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return info.name in differs or _calls(info, operators, nullcontext)


class _Calls(TorchDispatchMode):
    """Records the names of operators that are called, other than those composed of others."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__.removesuffix("_"))
        return func(*args, **(kwargs or {}))


@contextmanager
def _failing() -> Iterator[None]:
    """Let each replaced kernel of a dispatch stub raise an error."""
    _graft._replace(_graft._FAILING)
    try:
        yield
    finally:
        _graft._replace(_graft._OWN)


def _calls(info: OpInfo, operators: set[str], during: Callable[[], AbstractContextManager[None]]) -> bool:
    """Return whether an operator calls others, or a kernel that fails ``during`` its calls."""
    for dtype in dtypes_of(info):
        for sample in islice(samples_of(info, dtype), _TRIED):
            error = ""
            with during(), _Calls() as calls:
                try:
                    info(sample.input, *sample.args, **sample.kwargs)
                except Exception as raised:
                    error = str(raised)
            if _CALLED in error or calls.names & operators:
                return True
    return False


def dtypes_of(info: OpInfo) -> list[torch.dtype]:
    """Return the dtypes that an operator has on CPUs, in a fixed order."""
    return sorted(info.supported_dtypes("cpu"), key=str)


def samples_of(info: OpInfo, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[SampleInput]:
    """Return an operator's samples. ``OpInfo.sample_inputs`` reads the call stack, which is deep below pytest."""
    return info.sample_inputs_func(info, "cpu", dtype, requires_grad)


def difference(info: OpInfo, dtype: torch.dtype) -> str:
    """Return how the results, and the derivatives, of an operator differ from those of PyTorch's kernels and formulas:
    the sample with the largest error; empty if all bits are the same.
    """
    worst, said = 0.0, ""
    is_differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the operators
        for number, sample in enumerate(samples_of(info, dtype, is_differentiable)):
            ours = _results(info, sample)
            with _graft.stock():
                theirs = _results(info, sample)
            if (error := _largest_error(ours, theirs)) > worst:
                worst, said = error, f"sample {number}, {sample.summary()}: an error of {error:.3g}"
    return said


def _results(info: OpInfo, sample: SampleInput) -> list[Tensor] | str:
    """Return the results and the gradients; the message if an error is raised."""
    torch.manual_seed(0)
    try:
        with torch.random.fork_rng(devices=[]):
            results = tensors_of(info(sample.input, *sample.args, **sample.kwargs))
            sources = [each for each in tensors_of((sample.input, sample.args, sample.kwargs)) if each.requires_grad]
            aims = [each for each in results if each.requires_grad]
            ones = [torch.ones_like(each) for each in aims]
            grads = torch.autograd.grad(aims, sources, ones, allow_unused=True) if aims and sources else ()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [each.detach() for each in [*results, *grads] if each is not None]


def _largest_error(ours: list[Tensor] | str, theirs: list[Tensor] | str) -> float:
    """Return the largest difference of two lists of results; infinity if they cannot be compared."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return 0.0 if ours == theirs else float("inf")
    pairs = list(zip(ours, theirs, strict=False))
    if len(ours) != len(theirs) or any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in pairs):
        return float("inf")
    return max((_error(a, b) for a, b in pairs), default=0.0)


def _error(ours: Tensor, theirs: Tensor) -> float:
    if ours.is_sparse or ours.layout != torch.strided:
        ours, theirs = ours.to_dense(), theirs.to_dense()
    if not ours.numel():
        return 0.0
    kind = torch.cdouble if ours.is_complex() else torch.double
    is_same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    errors = (ours.to(kind) - theirs.to(kind)).abs().nan_to_num(float("inf"))
    return float(errors.masked_fill(is_same, 0).max())
