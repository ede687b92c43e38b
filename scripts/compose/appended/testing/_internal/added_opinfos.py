"""OpInfos of the operators that were added to this torch.

Their samples come from the native folder's ``samples.py``, or from their schemas. What else an OpInfo says, such as the
dtypes, is found out by calling the operator on them, or given by ``samples.py``::

    def my_op(make):  # a function for each operator; make(*shape) makes a tensor of the wanted dtype
        yield make(3, 4), make(4)  # positional arguments
        yield make(3), make(3), {"alpha": 2}  # the last may be keyword arguments

    OPINFO = {"my_op": {"dtypes": floating_types()}}  # further arguments of OpInfo
"""

import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD
from torch import _added_operators
from torch.testing import make_tensor
from torch.testing._internal.common_dtype import _dispatch_dtypes, all_types_and_complex_and
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree


try:
    from torch.testing._internal import added_samples
except ImportError:
    added_samples = None  # type: ignore[assignment]

_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (2, 0))
_DTYPES = all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16)


class NoSamples(Exception):
    """No arguments follow from a schema, or an OpInfo cannot describe the operator."""


class WrongSamples(NoSamples):
    """``samples.py`` has samples, but the operator takes them of no dtype."""


def op_infos(known: set[str]) -> list[OpInfo]:
    """An OpInfo for each added function that samples are there for.

    Args:
        known: names that have one already.
    """
    found = []
    for public, function in _added_operators.PUBLIC.items():
        if public not in known:
            # What operators warn of, they warn of in tests again.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found.append(op_info(public, function.rpartition(".")[2]))
                except NoSamples:
                    continue  # samples.py is asked for where the samples are needed
    return found


def functional_overload(name: str) -> torch._ops.OpOverload:
    """The first overload of an operator that writes to no argument."""
    packet = getattr(torch.ops.aten, name)
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return next((op for op in overloads if not op._schema.is_mutable), overloads[0])


def samples(name: str, make: Callable[..., torch.Tensor]) -> Iterator[SampleInput]:
    """The samples of an operator.

    Args:
        name: as in native_functions.yaml, without an overload.
        make: makes a tensor of a shape.

    Raises:
        NoSamples: ``samples.py`` has none, and none follow from the schema.
    """
    overload = functional_overload(name)
    given = getattr(added_samples, name, None) or partial(_from_schema, overload)
    for each in given(make):
        # A view that was made of a tensor is a leaf, too.
        each = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), each)
        values = list(each) if isinstance(each, tuple) else [each]
        keywords = values.pop() if isinstance(values[-1], dict) else {}
        sample = SampleInput(values[0], args=tuple(values[1:]), kwargs=keywords)
        # Tests of in-place forms leave such samples out.
        is_in_place = torch.Tag.pointwise not in overload.tags or _fits_into_its_input(overload, sample)
        yield sample.with_metadata(broadcasts_input=not is_in_place)


def _fits_into_its_input(overload: torch._ops.OpOverload, sample: SampleInput) -> bool:
    try:
        with torch.no_grad():
            result = overload(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return True  # a test of the operator tells more
    if not isinstance(result, torch.Tensor):
        return True  # then there is no in-place form
    return result.shape == sample.input.shape and torch.can_cast(result.dtype, sample.input.dtype)


def _from_schema(overload: torch._ops.OpOverload, make: Callable[..., torch.Tensor]) -> Iterator[tuple[Any, ...]]:
    schema = overload._schema
    for shape in _SHAPES if torch.Tag.pointwise in overload.tags else _SHAPES[:1]:
        values: list[Any] = []
        keywords = {}
        for argument in schema.arguments:
            if not argument.has_default_value():
                value = _value(schema, argument, partial(make, *shape))
                if argument.kwarg_only:
                    keywords[argument.name] = value
                else:
                    values.append(value)
        if not values:
            raise NoSamples(f"{schema.name} takes no tensor")
        yield *values, keywords


def _value(schema: torch._C.FunctionSchema, argument: Any, tensor: Callable[[], torch.Tensor]) -> Any:
    kind = str(argument.type)
    if kind == "Tensor":
        return tensor()
    if kind == "List[Tensor]":
        return [tensor(), tensor()]
    if kind.startswith("Optional["):
        return None
    values = {"int": 1, "float": 0.5, "number": 2, "bool": True, "List[int]": [1]}
    if kind not in values:
        raise NoSamples(f"{schema.name}: no value follows for {kind} {argument.name}")
    return values[kind]


def op_info(public: str, name: str) -> OpInfo:
    """The OpInfo of one operator.

    Args:
        public: its name below ``torch``.
        name: as in native_functions.yaml, without an overload.

    Raises:
        NoSamples: there are none, or an OpInfo cannot describe the operator.
        WrongSamples: those of ``samples.py`` are wrong, or the operator is; from the error of one dtype.
    """
    more = dict(getattr(added_samples, "OPINFO", {}).get(name, {}))
    overload = functional_overload(name)
    _require_describable(overload, has_more=bool(more))
    op = _added_operators.resolve(_added_operators.PUBLIC[public])
    if "dtypes" not in more:
        errors = {dtype: _error_of(op, name, dtype) for dtype in _DTYPES}
        more["dtypes"] = _dispatch_dtypes(dtype for dtype, error in errors.items() if error is None)
        if not more["dtypes"]:
            kind = WrongSamples if hasattr(added_samples, name) else NoSamples
            raise kind(
                f"{name} takes its samples of no dtype, samples.py can give others: {errors[torch.float]}"
            ) from errors[torch.float]
    is_differentiable = torch.double in more["dtypes"] and _is_differentiable(op, name)
    has_forward = is_differentiable and _has_forward_derivative(op, name)
    derived: dict[str, Any] = {
        "op": op,
        "aten_name": name,
        "sample_inputs_func": partial(_sample_inputs, name),
        "supports_out": "out" in _parameters(public),
        "supports_autograd": is_differentiable,
        "supports_forward_ad": has_forward,
        "supports_fwgrad_bwgrad": has_forward,
    }
    if _has_lists(overload):
        # For lists of tensors gradcheck's vmap has neither a rule nor a loop.
        derived |= dict.fromkeys(("check_batched_grad", "check_batched_gradgrad", "check_batched_forward_grad"), False)
    return OpInfo(public, **{**derived, **more})


def _require_describable(overload: torch._ops.OpOverload, has_more: bool) -> None:
    """Check that what OpInfos are for can be asked of an operator.

    Args:
        overload: its functional form, if it has one.
        has_more: whether ``samples.py`` has arguments of OpInfo for it.

    Raises:
        NoSamples: it cannot.
    """
    schema = overload._schema
    if schema.is_mutable:
        raise NoSamples(f"{schema.name} has no form that leaves its arguments as they are")
    if not any("Tensor" in str(each.type) for each in schema.returns):
        raise NoSamples(f"{schema.name} returns no tensor")
    if not any("Tensor" in str(each.type) for each in schema.arguments):
        raise NoSamples(f"{schema.name} takes no tensor")
    if torch.Tag.nondeterministic_seeded in overload.tags and not has_more:
        raise NoSamples(f"{schema.name} is random; OPINFO in samples.py can say what is to be skipped")


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
    return samples(name, partial(_make, device=device, dtype=dtype, requires_grad=requires_grad))


def _make(*shape: Any, dtype: torch.dtype, requires_grad: bool = False, **options: Any) -> torch.Tensor:
    """``make_tensor`` whose results need a gradient only where they can have one."""
    is_differentiable = dtype.is_floating_point or dtype.is_complex
    return make_tensor(*shape, dtype=dtype, requires_grad=requires_grad and is_differentiable, **options)


def _on_cpu(name: str, dtype: torch.dtype, requires_grad: bool = False) -> list[SampleInput]:
    with torch.random.fork_rng(devices=[]):
        found = list(samples(name, partial(_make, device="cpu", dtype=dtype, requires_grad=requires_grad)))
    if not found:
        raise NoSamples(f"samples.py yields nothing for {name}")
    return found


def _error_of(op: Callable[..., Any], name: str, dtype: torch.dtype) -> Exception | None:
    """What the samples of a dtype end in, if not in results."""
    for sample in _on_cpu(name, dtype):
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return error
    return None


def _is_differentiable(op: Callable[..., Any], name: str) -> bool:
    """Whether there are derivative formulas; what else is wrong with them is for tests to tell."""
    sample = _on_cpu(name, torch.double, requires_grad=True)[0]
    results = pytree.tree_leaves(op(sample.input, *sample.args, **sample.kwargs))
    wanted = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    try:
        torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])
    except Exception as error:
        return not _is_missing(error)
    return bool(wanted)


def _has_forward_derivative(op: Callable[..., Any], name: str) -> bool:
    """Whether there are formulas of the results' tangents; as ``_is_differentiable``."""
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
    """Whether a formula is missing; the backward of an operator without any raises a RuntimeError."""
    return isinstance(error, NotImplementedError) or "is not implemented" in str(error)
