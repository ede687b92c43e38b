"""Make a call and check its outcome."""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..samples import SAMPLES, reference_results
from .corpus import PLAIN, Call
from .tensors import Described

# Texts that an error must not contain: errors of the standard library, and internal assertions.
NEVER = ("INTERNAL ASSERT", "bad_alloc", "vector::", "basic_string", "std::", "map::at", "bad optional", "bad_cast")
# Messages for lack of memory: c10's, MKL's and that of fake tensors.
NO_MEMORY = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed", "invalid size")

# An operator's reference.
reference = SAMPLES.reference

# The maximum number of elements of inputs and results for which a lack of memory is a finding.
SMALL = 1 << 24
# With values from this magnitude on, the order of additions matters.
LARGE = 1e4


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call.

    Args:
        kind: ``result``, ``error``, ``no memory``, ``not compared``, ``not made`` or ``finding``.
        text: the description of a finding.
    """

    kind: str
    text: str = ""


class Finding(Exception):
    """An invalid outcome."""


def written(overload: torch._ops.OpOverload, call: Call) -> str:
    """Format the call for messages."""
    return f"{overload.name()}({', '.join(f'{name}={value}' for name, value in call.items())})"


def judge(overload: torch._ops.OpOverload, call: Call, large: bool) -> Outcome:
    """Make the call, which is ``large`` or not, and return its outcome."""
    try:
        given = made(call)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return Outcome("not made")
    try:
        result = attempt(lambda: run(overload, given), large)
        if isinstance(result, Outcome):
            return result
        if not large and all(x.device.type == "cpu" for x in tensors_of(given)):
            compare_with_meta(overload, call, result)
            compare_with_contiguous(overload, call, result)
            compare_with_reference(overload, call, result)
            differentiate(result, given)
    except Finding as finding:
        return Outcome("finding", str(finding))
    except (RuntimeError, MemoryError) as error:
        return Outcome("not compared", str(error))
    finally:
        gc.collect(0)
    return Outcome("result")


def made(call: Call, change: Callable[[Described], Described] = lambda x: x) -> Call:
    """Return the call with tensors in place of their descriptions."""
    return {name: change(value).make() if isinstance(value, Described) else value for name, value in call.items()}


def run(overload: torch._ops.OpOverload, given: Call) -> list[Tensor]:
    """Return the tensors in the call's result. Tensors that are written to require no gradient."""
    given = dict(given)
    for argument in overload._schema.arguments:
        if argument.is_write and isinstance(given[argument.name], Tensor):
            given[argument.name] = given[argument.name].detach()
    positional = [given.pop(a.name) for a in overload._schema.arguments if not a.kwarg_only]
    return tensors_of(overload(*positional, **given))


def tensors_of(value: Any) -> list[Tensor]:
    """Return every tensor in ``value``."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


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


def attempt(function: Callable[[], list[Tensor]], large: bool) -> list[Tensor] | Outcome:
    """Call ``function``.

    Raises:
        Finding: it neither returns nor raises an error about a wrong argument.
    """
    try:
        return function()
    except PLAIN as error:
        text = str(error)
        if any(part in text for part in NEVER) and not (large and "bad_alloc" in text):
            raise Finding(f"{type(error).__name__}: {text[:2000]}") from error
        return Outcome("no memory" if any(part in text for part in NO_MEMORY) else "error", text)
    except MemoryError as error:  # of Python, or std::bad_alloc
        if large:
            return Outcome("no memory")
        raise Finding(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        # The tables of dtypes in torch._prims_common lack float8: meta tensors of it fail in torch.mul, too.
        if isinstance(error, KeyError) and isinstance(error.args[0], torch.dtype):
            return Outcome("not compared", f"PyTorch's references do not support {error}")
        raise Finding(f"{type(error).__name__}: {str(error)[:2000]}") from error


def without_memory(x: Tensor) -> Tensor:
    """Return its shape, strides and dtype."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def compare_with_meta(overload: torch._ops.OpOverload, call: Call, result: list[Tensor]) -> None:
    """Check that meta tensors give the same shapes, dtypes and strides."""
    if any(x.is_conj() or x.is_neg() for x in tensors_of(made(call))):
        return
    given = pytree.tree_map_only(Tensor, without_memory, made(call))
    meta = attempt(lambda: run(overload, given), large=False)
    if isinstance(meta, Outcome) and meta.kind == "not compared":
        return
    if isinstance(meta, Outcome):
        raise Finding(f"a result, but meta tensors fail: {meta.text[:2000]}")
    # The strides of a tensor that is resized to the result are unspecified.
    has_strides = not overload._schema.is_mutable and not is_copied_first(tensors_of(given))
    ours, theirs = ([layout_of(x, has_strides) for x in tensors] for tensors in (result, meta))
    if ours != theirs:
        raise Finding(f"shape, dtype, strides: {ours}, but of meta tensors {theirs}")


def is_copied_first(given: list[Tensor]) -> bool:
    """Return whether TensorIterator changes the strides of an input before it chooses those of the result.

    On CPU it copies inputs of other dtypes than the result's, and the copy is dense. On other devices, which meta
    tensors imitate, it converts during the computation (compute_types in ATen/TensorIterator.cpp).
    """
    return len({x.dtype for x in given}) > 1 and not all(
        torch.ops.aten.is_non_overlapping_and_dense.default(x) for x in given
    )


def layout_of(x: Tensor, has_strides: bool) -> tuple[Any, ...]:
    """Return shape, dtype, and the strides that affect element positions."""
    strides = [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
    return tuple(x.shape), x.dtype, strides if has_strides and x.numel() else None


def compare_with_contiguous(overload: torch._ops.OpOverload, call: Call, result: list[Tensor]) -> None:
    """Check that contiguous tensors with the same values give the same result."""

    def contiguous(x: Tensor) -> Tensor:
        return x.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)

    written_to = [call[a.name] for a in overload._schema.arguments if a.is_write]
    if any(isinstance(x, Described) and x.layout in ("overlapping", "expanded") for x in written_to):
        return  # the result depends on the order of writes

    def run_again(change: Callable[[Tensor], Tensor]) -> list[Tensor] | Outcome:
        given = pytree.tree_map_only(Tensor, lambda x: change(contiguous(x)), made(call))
        return attempt(lambda: run(overload, given), large=False)

    if not all(is_tame(x) for x in tensors_of(made(call))):
        return
    again = run_again(lambda x: x)
    if isinstance(again, Outcome):
        raise Finding(f"a result, but contiguous tensors fail: {again.text[:2000]}")
    if all(map(is_close, result, again)):
        return
    moved = run_moved(run_again, again)
    repeated = max((repetitions_in(x) for x in tensors_of(made(call))), default=0)
    for ours, theirs, distance in zip(result, again, moved, strict=True):
        if not is_close(ours, theirs, 16 * distance + repeated * error_of_addition(theirs)):
            raise Finding(f"another result of contiguous tensors: {str(ours)[:1000]}, not {str(theirs)[:1000]}")


def compare_with_reference(overload: torch._ops.OpOverload, call: Call, result: list[Tensor]) -> None:
    """Check that the reference in samples.py gives the same result, up to rounding of the arguments.

    It is called if all tensors have the same supported dtype, since references in NumPy are not made for type
    promotion, and if no number is large, since a sum in double precision overflows later.
    """
    name = overload._schema.name.removeprefix("aten::")
    function = None if overload._schema.is_mutable else reference(name)
    given = tensors_of(made(call))
    numbers = [value for value in call.values() if isinstance(value, (float, complex))]
    if function is None or len({x.dtype for x in given}) != 1 or not all(map(is_tame, given)):
        return
    if any(LARGE <= abs(number) < math.inf for number in numbers):
        return
    if given[0].dtype not in stated_dtypes(name):
        return

    def wanted(change: Callable[[Tensor], Tensor]) -> list[Tensor] | Outcome:
        values = pytree.tree_map_only(Tensor, lambda x: change(x.detach()), made(call))
        positional = [values.pop(a.name) for a in overload._schema.arguments if not a.kwarg_only]
        try:
            return reference_results(function, *positional, **values)
        except Exception as error:  # for values that it does not support
            return Outcome("not compared", str(error))

    expected = wanted(lambda x: x)
    if isinstance(expected, Outcome):
        return
    if len(expected) != len(result) or any(x.shape != y.shape for x, y in zip(result, expected, strict=True)):
        raise Finding(f"shapes {[tuple(x.shape) for x in result]}, not {[tuple(x.shape) for x in expected]}")
    expected = [wide.to(x.dtype) for x, wide in zip(result, expected, strict=True)]
    if all(map(is_close, result, expected)):
        return
    moved = run_moved(wanted, expected)
    repeated = max(map(repetitions_in, given))
    for ours, theirs, distance in zip(result, expected, moved, strict=True):
        if not is_close(ours, theirs, 16 * distance + repeated * error_of_addition(theirs)):
            raise Finding(f"another result than the reference's: {str(ours)[:1000]}, not {str(theirs)[:1000]}")


@functools.cache
def stated_dtypes(name: str) -> frozenset[torch.dtype]:
    """Return the dtypes that samples.py states for an operator; none if it states none."""
    return frozenset(SAMPLES.stated(name).get("dtypes", ()))


def run_moved(
    run_again: Callable[[Callable[[Tensor], Tensor]], list[Tensor] | Outcome], result: list[Tensor]
) -> list[float]:
    """Return how much each result changes, at most, when each input value changes by one rounding error.

    A sum with cancellation cannot be more precise. The parts of a complex value change independently, since a direction
    can cancel out, too.
    """
    generator = torch.Generator().manual_seed(0)

    def move(x: Tensor) -> Tensor:
        if not (x.dtype.is_floating_point or x.is_complex()):
            return x
        parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        # A sum of integers and a Python number would be float, which rounds the change of a double away.
        signs = torch.randint(2, parts.shape, generator=generator).to(torch.double) * 2 - 1
        changed = parts * (1 + signs * torch.finfo(x.dtype).eps).to(parts.dtype)
        return torch.view_as_complex(changed) if x.is_complex() else changed

    distances = [0.0] * len(result)
    for _ in range(4):
        moved = run_again(move)
        if not isinstance(moved, Outcome):
            found = [largest_of(x.detach().to(torch.complex128) - y) for x, y in zip(moved, result, strict=True)]
            distances = [max(pair) for pair in zip(distances, found, strict=True)]
    return distances


def repetitions_in(x: Tensor) -> int:
    """Return how often, at most, one nonzero value occurs.

    The rounding errors of a sum of different values mostly cancel out, as those in `run_moved` do. With equal values
    they can all have the same sign. Both are far below the bound of n errors (Higham, Accuracy and Stability of
    Numerical Algorithms, section 4.2), which only equal values approach.
    """
    numbers = torch.view_as_real(x.detach().to(torch.complex128)).flatten()
    _, counts = numbers[numbers != 0].unique(return_counts=True)
    return int(counts.max()) if counts.numel() else 0


def error_of_addition(x: Tensor) -> float:
    """Return the maximum error of one addition with the result ``x``. Half types are added as float."""
    if not (x.dtype.is_floating_point or x.is_complex()):
        return 0.0
    return min(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps) * largest_of(x)


def is_tame(x: Tensor) -> bool:
    """Return whether the order of operations matters little.

    For subnormal complex numbers, the vectorized and the scalar code of PyTorch's own division and sign differ.
    """
    if not (x.dtype.is_floating_point or x.is_complex()):
        return True
    size = x.detach().to(torch.complex128).abs()
    is_subnormal = x.is_complex() and bool(((size > 0) & (size < torch.finfo(x.dtype).tiny)).any())
    return not is_subnormal and bool((size < LARGE).all())


def largest_of(x: Tensor) -> float:
    """Return the largest finite magnitude."""
    return float(x.detach().to(torch.complex128).abs().nan_to_num(0, 0, 0).max()) if x.numel() else 0.0


def is_close(one: Tensor, other: Tensor, beyond: float = 0.0) -> bool:
    """Compare up to the rounding errors of sums of a few values, plus ``beyond``."""
    if not (one.dtype.is_floating_point or one.is_complex()):
        return torch.equal(one, other)
    precision = torch.finfo(one.dtype).eps
    one, other = (x.detach().to(torch.complex128) for x in (one, other))
    largest = max(1.0, largest_of(one), largest_of(other))
    atol = 64 * precision * largest + beyond
    return torch.allclose(one, other, rtol=64 * precision, atol=atol, equal_nan=True)


def differentiate(result: list[Tensor], given: Call) -> None:
    """Check that the backward formula accepts what the operator accepted."""
    wanted = [x for x in tensors_of(given) if x.requires_grad]
    outputs = [x for x in result if x.requires_grad]
    if outputs:
        total = sum(x.abs().float().sum() for x in outputs)
        attempt(
            lambda: [x for x in torch.autograd.grad(total, wanted, allow_unused=True) if x is not None], large=False
        )
