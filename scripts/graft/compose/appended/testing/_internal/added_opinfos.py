"""OpInfos of the operators added to this torch.

``OPINFO`` in ``samples.py`` gives the properties of an OpInfo. If it gives no dtypes, the operator is called to find
its dtypes and derivatives; such an OpInfo cannot detect missing ones. Both happen when a test first needs them:
importing this module calls neither operators nor samples.
"""

import inspect
import unittest
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
from torch import _added_operators
from torch.testing._internal.added_sample_inputs import (
    NoSamples,
    WrongSamples,
    added_samples,
    described,
    errors,
    functional_overload,
    given,
    make_of,
    reference,
    require_samples,
    samples,
)
from torch.testing._internal.common_dtype import _dispatch_dtypes, all_types_and_complex_and
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo, SampleInput
from torch.utils import _pytree as pytree


_DTYPES = all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16)


class _AddedOpInfo(OpInfo):
    """An OpInfo that knows only its name, and is completed on first use."""

    def __init__(self, public: str, name: str) -> None:
        self.__dict__.update(name=public, aten_name=name)

    def __getattribute__(self, attribute: str) -> Any:
        known = object.__getattribute__(self, "__dict__")
        if attribute in known or attribute.startswith("__"):
            return object.__getattribute__(self, attribute)
        public, name = known["name"], known["aten_name"]
        self.__class__ = OpInfo
        try:
            _describe(self, public, name)
        except (NoSamples, WrongSamples) as reason:
            _leave_out(self, public, name, str(reason))
        return getattr(self, attribute)


def op_infos(known: set[str]) -> list[OpInfo]:
    """Return an OpInfo for each added function that has samples.

    Args:
        known: names that have one already.
    """
    found: list[OpInfo] = []
    for public, function in _added_operators.PUBLIC.items():
        if public not in known:
            name = function.rpartition(".")[2]
            try:
                _require_describable(name)
            except NoSamples:
                continue  # reported where the samples are needed
            except WrongSamples:
                pass  # reported by its tests
            found.append(_AddedOpInfo(public, name))
    return found


def op_info(public: str, name: str) -> OpInfo:
    """Return the OpInfo of one operator.

    Args:
        public: its name below ``torch``.
        name: its name in native_functions.yaml, without an overload.

    Raises:
        NoSamples: it has none, or an OpInfo cannot describe the operator.
        WrongSamples: ``samples.py`` or the operator is wrong; with the error for one dtype.
    """
    info = OpInfo.__new__(OpInfo)
    _describe(info, public, name)
    return info


def _describe(info: OpInfo, public: str, name: str) -> None:
    """Complete ``info``; raises like ``op_info``."""
    # Warnings of operators are shown again in tests.
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        try:
            OpInfo.__init__(info, public, **_arguments(public, name))
        except (NoSamples, WrongSamples):
            raise
        except Exception as error:
            raise WrongSamples(f"{name}: {described(error, name)}") from error


def _leave_out(info: OpInfo, public: str, name: str, reason: str) -> None:
    """Make all tests of ``info`` skip with a reason. Requesting its samples raises the reason as an error."""

    def no_samples(*_: Any, **__: Any) -> Iterator[SampleInput]:
        raise NoSamples(reason)

    OpInfo.__init__(
        info,
        public,
        op=_function(public),
        aten_name=name,
        dtypes=_dispatch_dtypes((torch.float,)),
        supports_out=False,
        supports_autograd=False,
        sample_inputs_func=no_samples,
        decorators=(unittest.skip(reason),),
    )
    info.left_out = reason


def _function(public: str) -> Callable[..., Any]:
    return _added_operators.resolve(_added_operators.PUBLIC[public])


def _arguments(public: str, name: str) -> dict[str, Any]:
    """Return the arguments of an operator's OpInfo; raises like ``op_info``."""
    _require_describable(name)
    more = _more(name)
    op = _function(public)
    arguments: dict[str, Any] = {
        "op": op,
        "aten_name": name,
        "ref": reference(name),
        "sample_inputs_func": partial(_sample_inputs, name),
    }
    if given(f"{name}_errors"):
        arguments["error_inputs_func"] = partial(_error_inputs, name)
    if "dtypes" not in more:
        arguments |= _derived(op, public, name)
    if _has_lists(functional_overload(name)):
        # gradcheck's vmap supports no lists of tensors.
        arguments |= dict.fromkeys(
            ("check_batched_grad", "check_batched_gradgrad", "check_batched_forward_grad"), False
        )
    return {**arguments, **more}


def is_derived(name: str) -> bool:
    """Return whether an OpInfo describes observed behavior, because ``samples.py`` does not state its dtypes."""
    return "dtypes" not in _more(name)


def _derived(op: Callable[..., Any], public: str, name: str) -> dict[str, Any]:
    """Find dtypes, variants and derivatives by calling the operator; raises like ``op_info``."""
    raised = {dtype: _error_of(op, name, dtype) for dtype in _DTYPES}
    dtypes = _dispatch_dtypes(dtype for dtype, error in raised.items() if error is None)
    if not dtypes:
        error = raised[torch.float]
        kind = WrongSamples if given(name) else NoSamples
        text = described(error, name)
        raise kind(f"{name} accepts its samples in no dtype; samples.py can define others: {text}") from error
    is_differentiable = torch.double in dtypes and _is_differentiable(op, name)
    has_forward = is_differentiable and _has_forward_derivative(op, name)
    return {
        "dtypes": dtypes,
        "supports_out": "out" in _parameters(public),
        "supports_autograd": is_differentiable,
        "supports_forward_ad": has_forward,
        "supports_fwgrad_bwgrad": has_forward,
    }


def _more(name: str) -> dict[str, Any]:
    """Return what ``OPINFO`` in ``samples.py`` states for an operator.

    Raises:
        WrongSamples: it is not a dictionary.
    """
    try:
        return dict(getattr(added_samples, "OPINFO", {}).get(name, {}))
    except Exception as error:
        raise WrongSamples(f"samples.py: OPINFO must have a dictionary for {name}: {error}") from error


def _require_describable(name: str) -> None:
    """Check, without calling it, that an OpInfo can describe an operator.

    Raises:
        NoSamples: it cannot.
        WrongSamples: ``samples.py`` is wrong.
    """
    schema = functional_overload(name)._schema
    if schema.is_mutable:
        raise NoSamples(f"{schema.name} has no variant that does not mutate its arguments")
    if not any("Tensor" in str(each.type) for each in schema.returns):
        raise NoSamples(f"{schema.name} returns no tensor")
    if not any("Tensor" in str(each.type) for each in schema.arguments):
        raise NoSamples(f"{schema.name} takes no tensor")
    if torch.Tag.nondeterministic_seeded in functional_overload(name).tags and not _more(name):
        raise NoSamples(f"{schema.name} is random; OPINFO in samples.py can list tests to skip")
    require_samples(name)


def _has_lists(overload: torch._ops.OpOverload) -> bool:
    schema = overload._schema
    return any(
        str(each.type).startswith("List[") and "Tensor" in str(each.type)
        for each in [*schema.arguments, *schema.returns]
    )


def _parameters(public: str) -> set[str]:
    return set(inspect.signature(_added_operators.FUNCTIONS[_added_operators.PUBLIC[public]]).parameters)


def _sample_inputs(
    name: str, _: OpInfo, device: Any, dtype: torch.dtype, requires_grad: bool, **kwargs: Any
) -> Iterator[SampleInput]:
    return samples(name, partial(make_of, device=device, dtype=dtype, requires_grad=requires_grad))


def _error_inputs(name: str, _: OpInfo, device: Any, **kwargs: Any) -> Iterator[ErrorInput]:
    return errors(name, partial(make_of, device=device))


def _on_cpu(name: str, dtype: torch.dtype, requires_grad: bool = False) -> list[SampleInput]:
    with torch.random.fork_rng(devices=[]):
        found = list(samples(name, partial(make_of, device="cpu", dtype=dtype, requires_grad=requires_grad)))
    if not found:
        raise NoSamples(f"samples.py yields nothing for {name}")
    return found


def _error_of(op: Callable[..., Any], name: str, dtype: torch.dtype) -> Exception | None:
    """Return the error raised for the samples of a dtype, or None."""
    try:
        found = _on_cpu(name, dtype)
    except Exception as error:
        return error
    for sample in found:
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return error
    return None


def _is_differentiable(op: Callable[..., Any], name: str) -> bool:
    """Return whether there are derivative formulas. Tests find other errors in them."""
    sample = _on_cpu(name, torch.double, requires_grad=True)[0]
    results = pytree.tree_leaves(op(sample.input, *sample.args, **sample.kwargs))
    wanted = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    try:
        torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])
    except Exception as error:
        return not _is_missing(error)
    return bool(wanted)


def _has_forward_derivative(op: Callable[..., Any], name: str) -> bool:
    """Return whether there are formulas for forward-mode derivatives, like ``_is_differentiable``."""
    sample = _on_cpu(name, torch.double)[0]
    with fwAD.dual_level():
        dual = pytree.tree_map_only(
            torch.Tensor, lambda t: fwAD.make_dual(t, torch.ones_like(t)), (sample.input, sample.args, sample.kwargs)
        )
        try:
            op(dual[0], *dual[1], **dual[2])
        except Exception as error:
            return not _is_missing(error)
    return True


def _is_missing(error: Exception) -> bool:
    """Return whether a formula is missing: the backward of an operator without any raises a RuntimeError."""
    return isinstance(error, NotImplementedError) or "is not implemented" in str(error)
