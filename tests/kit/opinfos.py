"""OpInfos of the operators added to this torch, from the samples of their folders.

``-p tests.kit.opinfos`` makes it a plugin of pytest that adds them to ``op_db``, and
``python -m tests.kit.opinfos ~/pytorch/test/test_ops.py -k my_op`` runs one of PyTorch's own test files with them. The
torch that users get has none of this.

``OPINFO`` in ``samples.py`` gives the properties of an OpInfo. If it gives no dtypes, the operator is called to find
its dtypes and derivatives; such an OpInfo cannot detect missing ones.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"error: no test file of PyTorch is named\n  next: {sys.executable} -m tests.kit.opinfos FILE -k NAME")
    # Both before torch.testing reads them. In CI, PyTorch's files write reports by a package that only its CI installs.
    del sys.argv[0]
    os.environ.pop("CI", None)

import functools
import inspect
import runpy
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
from torch import _added_operators
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_dtype import _dispatch_dtypes
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput
from torch.utils import _pytree as pytree

from .made_up import DTYPES, NoSamples, make_of, tensors_of
from .samples import SAMPLES, Samples, WrongSamples, functional_overload, is_differentiable


def pytest_configure() -> None:
    """Add the OpInfos to ``op_db`` before a test module imports it."""
    added_op_infos()


@functools.cache
def added_op_infos() -> list[OpInfo]:
    """Return an OpInfo for each added function that its samples describe. All are in ``op_db``, too."""
    known = {info.name for info in op_db}
    added = []
    for public in _added_operators.PUBLIC:
        if public not in known and not left_out(public):
            added.append(op_info(public))
    op_db.extend(added)
    common_methods_invocations.ops_and_refs.extend(added)
    return added


@functools.cache
def left_out(public: str) -> str:
    """Return why an added function has no OpInfo; empty if it has one. A test of every wheel raises the reason."""
    try:
        op_info(public)
    except (NoSamples, WrongSamples) as reason:
        return str(reason)
    return ""


def op_info(public: str, samples: Samples = SAMPLES) -> OpInfo:
    """Return the OpInfo of the function that is called ``public`` below ``torch``.

    Raises:
        NoSamples: it has no samples, or an OpInfo cannot describe the operator.
        WrongSamples: ``samples.py`` or the operator is wrong; with the error for one dtype.
    """
    name = aten_name(public)
    # Warnings of operators are shown again in tests.
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        try:
            return OpInfo(public, **_arguments(public, name, samples))
        except (NoSamples, WrongSamples):
            raise
        except Exception as error:
            raise WrongSamples(f"{name}: {samples.described(error, name)}") from error


def aten_name(public: str) -> str:
    """Return the name in native_functions.yaml, without an overload, of a function below ``torch``."""
    return str(_added_operators.PUBLIC[public].rpartition(".")[2])


def _arguments(public: str, name: str, samples: Samples) -> dict[str, Any]:
    """Return the arguments of an operator's OpInfo; raises like ``op_info``."""
    _require_describable(name, samples)
    stated = samples.stated(name)
    op = _added_operators.resolve(_added_operators.PUBLIC[public])
    arguments: dict[str, Any] = {
        "op": op,
        "aten_name": name,
        "ref": samples.reference(name),
        "sample_inputs_func": partial(_sample_inputs, samples, name),
    }
    if f"{name}_errors" in samples.functions:
        arguments["error_inputs_func"] = partial(_error_inputs, samples, name)
    if "dtypes" not in stated:
        arguments |= _derived(op, public, name, samples)
    if _has_lists(functional_overload(name)):
        # gradcheck uses an older vmap, which supports no lists of tensors.
        arguments |= dict.fromkeys(
            ("check_batched_grad", "check_batched_gradgrad", "check_batched_forward_grad"), False
        )
    return {**arguments, **stated}


def _require_describable(name: str, samples: Samples) -> None:
    """Check, without calling it, that an OpInfo can describe an operator.

    Raises:
        NoSamples: it cannot.
        WrongSamples: ``samples.py`` is wrong.
    """
    overload = functional_overload(name)
    schema = overload._schema
    if schema.is_mutable:
        raise NoSamples(f"{schema.name} has no variant that does not mutate its arguments")
    if not any("Tensor" in str(each.type) for each in schema.returns):
        raise NoSamples(f"{schema.name} returns no tensor")
    if not any("Tensor" in str(each.type) for each in schema.arguments):
        raise NoSamples(f"{schema.name} takes no tensor")
    if torch.Tag.nondeterministic_seeded in overload.tags and not samples.stated(name):
        raise NoSamples(f"{schema.name} is random; OPINFO in samples.py can list tests to skip")
    samples.require(name)


def _derived(op: Callable[..., Any], public: str, name: str, samples: Samples) -> dict[str, Any]:
    """Find dtypes, variants and derivatives by calling the operator; raises like ``op_info``."""
    raised = {dtype: _error_of(op, name, dtype, samples) for dtype in DTYPES}
    dtypes = _dispatch_dtypes(dtype for dtype, error in raised.items() if error is None)
    if not dtypes:
        error = raised[torch.float]
        assert error is not None
        text = samples.described(error, name)
        if name in samples.functions:
            raise WrongSamples(f"{name} accepts its samples in no dtype: {text}") from error
        raise NoSamples(f"{name} accepts made-up arguments in no dtype; write samples: {text}") from error
    times = _times_differentiable(op, _on_cpu(name, torch.double, samples, True)) if torch.double in dtypes else 0
    has_forward = times > 0 and _has_forward_derivative(op, _on_cpu(name, torch.double, samples))
    parameters = inspect.signature(_added_operators.FUNCTIONS[_added_operators.PUBLIC[public]]).parameters
    return {
        "dtypes": dtypes,
        "supports_out": "out" in parameters,
        "supports_autograd": times > 0,
        "supports_gradgrad": times > 1,
        "supports_forward_ad": has_forward,
        "supports_fwgrad_bwgrad": has_forward,
    }


def _has_lists(overload: torch._ops.OpOverload) -> bool:
    schema = overload._schema
    kinds = [str(each.type) for each in [*schema.arguments, *schema.returns]]
    return any(kind.startswith("List[") and "Tensor" in kind for kind in kinds)


def _sample_inputs(
    samples: Samples, name: str, _: OpInfo, device: Any, dtype: torch.dtype, requires_grad: bool, **kwargs: Any
) -> Iterator[SampleInput]:
    return samples.inputs(name, partial(make_of, device=device, dtype=dtype, requires_grad=requires_grad))


def _error_inputs(samples: Samples, name: str, _: OpInfo, device: Any, **kwargs: Any) -> Iterator[ErrorInput]:
    return samples.errors(name, partial(make_of, device=device))


def _on_cpu(name: str, dtype: torch.dtype, samples: Samples, requires_grad: bool = False) -> list[SampleInput]:
    with torch.random.fork_rng(devices=[]):
        make = partial(make_of, device="cpu", dtype=dtype, requires_grad=requires_grad)
        found = list(samples.inputs(name, make))
    if not found:
        raise NoSamples(f"samples.py yields nothing for {name}")
    return found


def _error_of(op: Callable[..., Any], name: str, dtype: torch.dtype, samples: Samples) -> Exception | None:
    """Return the error raised for the samples of a dtype, or None."""
    try:
        for sample in _on_cpu(name, dtype, samples):
            op(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return error
    return None


def _times_differentiable(op: Callable[..., Any], inputs: list[SampleInput]) -> int:
    """Return how often formulas differentiate an operator, at most twice. Tests find other errors in them."""
    sample = inputs[0]
    given = [each for each in tensors_of((sample.input, sample.args, sample.kwargs)) if each.requires_grad]
    results = tensors_of(op(sample.input, *sample.args, **sample.kwargs))
    for times in (0, 1):
        wanted = [each for each in results if each is not None and each.requires_grad]
        if not wanted:
            return 2 * times  # a linear operator has no second derivative
        try:
            ones = [torch.ones_like(each).requires_grad_() for each in wanted]
            results = torch.autograd.grad(wanted, given, ones, create_graph=True, allow_unused=True)
        except Exception as error:
            return times if _is_missing(error) else 2
        given += ones
    return 2


def _has_forward_derivative(op: Callable[..., Any], inputs: list[SampleInput]) -> bool:
    """Return whether there are formulas for forward-mode derivatives, like ``_times_differentiable``."""
    sample = inputs[0]
    with fwAD.dual_level():
        given = (sample.input, sample.args, sample.kwargs)
        dual = pytree.tree_map_only(torch.Tensor, _with_tangent, given)
        try:
            op(dual[0], *dual[1], **dual[2])
        except Exception as error:
            return not _is_missing(error)
    return True


def _with_tangent(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dual tensor; an index, for example, has no tangent."""
    return fwAD.make_dual(tensor, torch.ones_like(tensor)) if is_differentiable(tensor) else tensor


def _is_missing(error: Exception) -> bool:
    """Return whether a formula is missing: the backward of an operator without any raises a RuntimeError."""
    said = ("is not implemented", "trying to differentiate twice")
    return isinstance(error, NotImplementedError) or any(text in str(error) for text in said)


if __name__ == "__main__":
    added_op_infos()
    runpy.run_path(sys.argv[0], run_name="__main__")
