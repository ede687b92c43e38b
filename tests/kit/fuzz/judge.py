"""Make a call and check its outcome."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._prims_common import check_significant_strides
from torch.utils import _pytree as pytree

from ..made_up import tensors_of
from ..samples import SAMPLES, reference_results
from .rounding import LARGE, TINY, Change, InvalidOutcome, compare
from .tensors import Described
from .valid import PLAIN, Call, made

# Texts that an error must not contain: errors of the standard library, and internal assertions.
NEVER = ("INTERNAL ASSERT", "bad_alloc", "vector::", "basic_string", "std::", "map::at", "bad optional", "bad_cast")
# Messages for lack of memory: c10's, MKL's and that of fake tensors.
NO_MEMORY = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed", "invalid size")

# The standard library's, for a copy of a part of large inputs.
TOO_LARGE = ("bad_alloc", "larger than max_size()")

# An operator's reference.
reference = SAMPLES.reference

# The maximum number of elements of inputs and results for which a lack of memory is a finding.
SMALL = 1 << 24

Tensors = list[Tensor]


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a call.

    Args:
        kind: ``result``, ``error``, ``no-memory``, ``not-compared`` or ``not-made``.
        text: the message of an error.
    """

    kind: str
    text: str = ""


class _UnsupportedByReference(InvalidOutcome):
    """A reference raised an error."""


def judge(overload: torch._ops.OpOverload, call: Call, large: bool) -> CallOutcome:
    """Make the call, which is ``large`` or not, and return its outcome.

    Raises:
        InvalidOutcome: the outcome is invalid.
    """
    try:
        given = made(call)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return CallOutcome("not-made")
    try:
        result = attempt(lambda: run(overload, given), large)
        if isinstance(result, CallOutcome):
            return result
        if not large and all(x.device.type == "cpu" for x in tensors_of(given)):
            compare_with_meta(overload, call, result)
            compare_with_contiguous(overload, call, result)
            compare_with_reference(overload, call, result)
            differentiate(result, given)
    except (RuntimeError, MemoryError) as error:
        return CallOutcome("not-compared", str(error))
    finally:
        gc.collect(0)
    return CallOutcome("result")


def run(overload: torch._ops.OpOverload, given: Call) -> Tensors:
    """Return the tensors in the call's result. Tensors that are written to require no gradient."""
    given = dict(given)
    for argument in overload._schema.arguments:
        if argument.is_write and isinstance(given[argument.name], Tensor):
            given[argument.name] = given[argument.name].detach()
    positional = [given.pop(a.name) for a in overload._schema.arguments if not a.kwarg_only]
    return tensors_of(overload(*positional, **given))


def is_large(overload: torch._ops.OpOverload, call: Call) -> bool:
    """Return whether the inputs, or the results according to meta tensors, are so large that lack of memory or time is
    expected.
    """
    if sum(math.prod(x.shape) for x in call.values() if isinstance(x, Described)) > SMALL:
        return True
    try:
        results = run(overload, pytree.tree_map_only(Tensor, without_memory, made(call)))
    except Exception:  # the call itself will raise it
        return False
    return sum(x.numel() for x in results) > SMALL


def attempt(function: Callable[[], Tensors], large: bool) -> Tensors | CallOutcome:
    """Call ``function``.

    Raises:
        InvalidOutcome: it neither returns nor raises an error about a wrong argument.
    """
    try:
        return function()
    except PLAIN as error:
        text = str(error)
        if any(part in text for part in NEVER) and not (large and any(part in text for part in TOO_LARGE)):
            raise InvalidOutcome(f"{type(error).__name__}: {text[:2000]}") from error
        return CallOutcome("no-memory" if any(part in text for part in (*NO_MEMORY, *TOO_LARGE)) else "error", text)
    except MemoryError as error:  # of Python, or std::bad_alloc
        if large:
            return CallOutcome("no-memory")
        raise InvalidOutcome(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        # The tables of dtypes in torch._prims_common lack float8: meta tensors of it fail in torch.mul, too.
        if isinstance(error, KeyError) and isinstance(error.args[0], torch.dtype):
            return CallOutcome("not-compared", f"PyTorch's references do not support {error}")
        raise InvalidOutcome(f"{type(error).__name__}: {str(error)[:2000]}") from error


def without_memory(x: Tensor) -> Tensor:
    """Return its shape, strides and dtype."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def compare_with_meta(overload: torch._ops.OpOverload, call: Call, result: Tensors) -> None:
    """Check that meta tensors give the same shapes, dtypes and strides."""
    if any(x.is_conj() or x.is_neg() for x in tensors_of(made(call))):
        return
    given = pytree.tree_map_only(Tensor, without_memory, made(call))
    meta = attempt(lambda: run(overload, given), large=False)
    if isinstance(meta, CallOutcome) and meta.kind == "not-compared":
        return
    if isinstance(meta, CallOutcome):
        raise InvalidOutcome(f"a result, but meta tensors fail: {meta.text[:2000]}")
    # The strides of a tensor that is resized to the result are unspecified.
    has_strides = not overload._schema.is_mutable and not is_copied_first(tensors_of(given))
    for ours, theirs in zip(result, meta, strict=True):
        is_same = (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if not is_same or (has_strides and not check_significant_strides(ours, theirs, only_cuda=False)[0]):
            kinds = [f"{x.dtype} {list(x.shape)} with strides {x.stride()}" for x in (ours, theirs)]
            raise InvalidOutcome(f"{kinds[0]}, but of meta tensors {kinds[1]}")


def is_copied_first(given: Tensors) -> bool:
    """Return whether TensorIterator changes the strides of an input before it chooses those of the result.

    On CPU it copies inputs of other dtypes than the result's, and the copy is dense. On other devices, which meta
    tensors imitate, it converts during the computation (compute_types in ATen/TensorIterator.cpp).
    """
    return len({x.dtype for x in given}) > 1 and not all(
        torch.ops.aten.is_non_overlapping_and_dense.default(x) for x in given
    )


def compare_with_contiguous(overload: torch._ops.OpOverload, call: Call, result: Tensors) -> None:
    """Check that contiguous tensors with the same values give the same result."""
    written_to = [call[a.name] for a in overload._schema.arguments if a.is_write]
    if any(isinstance(x, Described) and x.layout in ("overlapping", "expanded") for x in written_to):
        return  # the result depends on the order of writes

    def run_again(change: Change) -> Tensors:
        def contiguous(x: Tensor) -> Tensor:
            return change(x.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format))

        # PyTorch cannot copy every tensor, for example a negated one of uint16; then nothing is compared.
        given = pytree.tree_map_only(Tensor, contiguous, made(call))
        again = attempt(lambda: run(overload, given), large=False)
        if isinstance(again, CallOutcome):
            raise InvalidOutcome(f"a result, but contiguous tensors fail: {again.text[:2000]}")
        return again

    compare(result, run_again, tensors_of(made(call)), "another result of contiguous tensors")


def compare_with_reference(overload: torch._ops.OpOverload, call: Call, result: Tensors) -> None:
    """Check that the reference in samples.py gives the same result, up to rounding of the arguments.

    It is called if all tensors have the same supported dtype, since references in NumPy are not made for type
    promotion, and if no number is large or tiny: double precision overflows and underflows later, and a loop in Python
    takes long.
    """
    name = overload._schema.name.removeprefix("aten::")
    function = None if overload._schema.is_mutable else reference(name)
    given = tensors_of(made(call))
    numbers = [value for value in pytree.tree_leaves(call) if isinstance(value, (int, float, complex))]
    if function is None or len({x.dtype for x in given}) != 1 or given[0].dtype not in stated_dtypes(name):
        return
    if any(LARGE <= abs(number) < math.inf or 0 < abs(number) < TINY for number in numbers):
        return

    def run_again(change: Change) -> Tensors:
        values = pytree.tree_map_only(Tensor, lambda x: change(x.detach()), made(call))
        positional = [values.pop(a.name) for a in overload._schema.arguments if not a.kwarg_only]
        try:
            return reference_results(function, *positional, **values)
        except Exception as error:
            raise _UnsupportedByReference from error

    with contextlib.suppress(_UnsupportedByReference):
        compare(result, run_again, given, "another result than the reference's")


@functools.cache
def stated_dtypes(name: str) -> frozenset[torch.dtype]:
    """Return the dtypes that samples.py states for an operator; none if it states none."""
    return frozenset(SAMPLES.stated(name).get("dtypes", ()))


def differentiate(result: Tensors, given: Call) -> None:
    """Check that the backward formula accepts what the operator accepted."""
    wanted = [x for x in tensors_of(given) if x.requires_grad]
    outputs = [x for x in result if x.requires_grad]
    if outputs:
        total = sum(x.abs().float().sum() for x in outputs)
        attempt(lambda: tensors_of(torch.autograd.grad(total, wanted, allow_unused=True)), large=False)
