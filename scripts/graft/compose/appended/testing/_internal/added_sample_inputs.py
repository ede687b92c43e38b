"""Sample inputs for tests of the operators added to this torch.

They come from the native folder's ``samples.py``, or are derived from the operators' schemas::

    def my_op(make):  # a function for each operator; make(*shape) makes a tensor of the wanted dtype
        yield make(3, 4), make(4)  # positional arguments
        yield make(3), make(3), {"alpha": 2}  # the last may be keyword arguments

    def my_op_reference(input, other, alpha=1):  # what it is to give, in NumPy or plain torch
        return input.numpy() + alpha * other.numpy()

    def my_op_errors(make):  # arguments, what the error says, and its type if it is no RuntimeError
        yield (make(3), make(4)), "must match"

    OPINFO = {"my_op": {"dtypes": floating_types(), "supports_forward_ad": True}}  # arguments of PyTorch's OpInfo

A reference receives the samples converted by ``widened``: floating-point values have double precision.
"""

import importlib.util
import itertools
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.testing import make_tensor
from torch.testing._internal.opinfo.core import ErrorInput, SampleInput
from torch.utils import _pytree as pytree


_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (2, 0))

# The path of samples.py in a wheel.
_MODULE = "torch.testing._internal.added_samples"

samples_error: Exception | None = None
added_samples: Any = None
if importlib.util.find_spec(_MODULE) is not None:
    try:
        added_samples = importlib.import_module(_MODULE)
    except Exception as error:
        samples_error = error  # reported where samples are needed; importing this module is not a test


class NoSamples(Exception):
    """The schema gives no sample inputs, or an OpInfo cannot describe the operator."""


class WrongSamples(Exception):
    """``samples.py`` is wrong, or the operator accepts its samples for no dtype."""


def described(error: BaseException, name: str) -> str:
    """Return an error in one line, with its place in ``samples.py``: where it was raised, or else the samples of
    ``name``.
    """
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).stem == _MODULE.rpartition(".")[2]
    ]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    if not lines and (code := getattr(given(name), "__code__", None)):
        lines.append(code.co_firstlineno)
    text = (str(error).splitlines() or [""])[0]
    return f"{f'samples.py:{lines[-1]}: ' if lines else ''}{type(error).__name__}: {text}"


def given(name: str) -> Callable[..., Iterator[Any]] | None:
    """Return the function for an operator in ``samples.py``."""
    return getattr(added_samples, name, None)


def reference(name: str) -> Callable[..., Any] | None:
    """Return the reference function of an operator in ``samples.py``."""
    return given(f"{name}_reference")


def widened(value: Any) -> Any:
    """Convert the tensors in ``value`` to double precision for references. Integers and other values stay."""

    def widen(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().resolve_conj().resolve_neg()
        return x.to(torch.cdouble) if x.is_complex() else x.double() if x.is_floating_point() else x

    return pytree.tree_map_only(torch.Tensor, widen, value)


def reference_results(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """Return the reference's result for the arguments of an operator, as tensors in double precision."""
    result = function(*widened(args), **widened(kwargs))
    several = result if isinstance(result, (tuple, list)) else (result,)
    return [each if isinstance(each, torch.Tensor) else torch.as_tensor(each) for each in several]


def as_precise(expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a reference's result to the precision expected for tensors of ``dtype``.

    For integers and booleans the operator returns floating-point values of the default dtype.
    """
    if not (expected.is_floating_point() or expected.is_complex()):
        return expected
    precision = dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
    if expected.is_complex() == precision.is_complex:
        return expected.to(precision)
    return expected.to(precision.to_complex() if expected.is_complex() else precision.to_real())


def errors(name: str, make: Callable[..., torch.Tensor]) -> Iterator[ErrorInput]:
    """Yield the error inputs of an operator in ``samples.py``; ``make`` creates a tensor of float, or of another
    ``dtype``.
    """
    for arguments, message, *kind in given(f"{name}_errors")(partial(make, dtype=torch.float)):
        values = list(arguments)
        keywords = values.pop() if isinstance(values[-1], dict) else {}
        sample = SampleInput(values[0], args=tuple(values[1:]), kwargs=keywords)
        yield ErrorInput(sample, error_type=kind[0] if kind else RuntimeError, error_regex=message)


def functional_overload(name: str) -> torch._ops.OpOverload:
    """Return the first overload of an operator that mutates no argument."""
    packet = getattr(torch.ops.aten, name)
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return next((op for op in overloads if not op._schema.is_mutable), overloads[0])


def samples(name: str, make: Callable[..., torch.Tensor]) -> Iterator[SampleInput]:
    """Yield the samples of an operator.

    Args:
        name: its name in native_functions.yaml, without an overload.
        make: creates a tensor of a shape.

    Raises:
        NoSamples: ``samples.py`` has none, and the schema gives none.
        WrongSamples: ``samples.py`` cannot be imported.
    """
    overload = functional_overload(name)
    for each in _raw(overload, name)(make):
        # A view of a tensor must be a leaf, too.
        each = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), each)
        values = list(each) if isinstance(each, tuple) else [each]
        keywords = values.pop() if isinstance(values[-1], dict) else {}
        sample = SampleInput(values[0], args=tuple(values[1:]), kwargs=keywords)
        # Tests of in-place variants skip such samples.
        is_in_place = torch.Tag.pointwise not in overload.tags or _fits_into_its_input(overload, sample)
        if len(overload._schema.returns) > 1 and any(leaf.requires_grad for leaf in _tensors(each)):
            sample = with_differentiable_results(overload, sample)
        yield sample.with_metadata(broadcasts_input=not is_in_place)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def with_differentiable_results(function: Callable[..., Any], sample: SampleInput) -> SampleInput:
    """Make tests of derivatives take only the results of ``function`` that have any: with forward AD they differentiate
    every floating-point result.
    """
    process = sample.output_process_fn_grad
    try:
        with torch.enable_grad():  # samples are made without
            results = _tensors(process(function(sample.input, *sample.args, **sample.kwargs)))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return sample  # a test of the operator gives a better message
    are_kept = [each.requires_grad for each in results]
    if any(are_kept) and not all(are_kept):
        sample.output_process_fn_grad = lambda given: tuple(itertools.compress(_tensors(process(given)), are_kept))
    return sample


def _raw(overload: torch._ops.OpOverload, name: str) -> Callable[..., Iterator[Any]]:
    if samples_error is not None:
        raise WrongSamples(described(samples_error, name)) from samples_error
    return given(name) or partial(_from_schema, overload)


def require_samples(name: str) -> None:
    """Check that there are samples, without creating one.

    Raises:
        NoSamples: ``samples.py`` has none, and the schema gives none.
        WrongSamples: ``samples.py`` cannot be imported.
    """
    overload = functional_overload(name)
    _raw(overload, name)
    if given(name) is None:
        # Whether each argument has a value does not depend on the tensors.
        list(_from_schema(overload, lambda *shape: None))


def _fits_into_its_input(overload: torch._ops.OpOverload, sample: SampleInput) -> bool:
    try:
        with torch.no_grad():
            result = overload(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return True  # a test of the operator gives a better message
    if not isinstance(result, torch.Tensor):
        return True  # then there is no in-place variant
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
        raise NoSamples(f"{schema.name}: no value can be derived for {kind} {argument.name}")
    return values[kind]


def make_of(*shape: Any, dtype: torch.dtype, requires_grad: bool = False, **options: Any) -> torch.Tensor:
    """``make_tensor``, with ``requires_grad`` only for dtypes that support it."""
    is_differentiable = dtype.is_floating_point or dtype.is_complex
    return make_tensor(*shape, dtype=dtype, requires_grad=requires_grad and is_differentiable, **options)
