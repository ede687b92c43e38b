"""Arguments made up from the schema, for operators without samples.

Integers among them may be meant as indices. A kernel that does not check these reads and writes anywhere. So the
operator is first called in a process of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import multiprocessing
import os
import re
import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.utils import _pytree as pytree

Make = Callable[..., torch.Tensor]

DTYPES = all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16)

_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (2, 0))
# Indices that are out of the range of any tensor. Memory that is a little out of range can often be read.
_FAR = {torch.int: 1 << 30, torch.long: 1 << 40}
# Seconds, and bytes in addition to those in use, for all calls of an operator.
_LONGEST, _MEMORY = 60, 4 << 30


class NoSamples(Exception):
    """The schema gives no sample inputs, or an OpInfo cannot describe the operator."""


def make_of(*shape: Any, dtype: torch.dtype, requires_grad: bool = False, **options: Any) -> torch.Tensor:
    """``make_tensor``, with ``requires_grad`` only for dtypes that support it."""
    is_differentiable = dtype.is_floating_point or dtype.is_complex
    return make_tensor(*shape, dtype=dtype, requires_grad=requires_grad and is_differentiable, **options)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return every tensor in ``value``."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def made_up_arguments(overload: torch._ops.OpOverload, make: Make) -> Iterator[tuple[Any, ...]]:
    """Yield arguments for those that have no default, which are of the schema's types."""
    schema = overload._schema
    needed = [argument for argument in schema.arguments if not argument.has_default_value()]
    for shape in _SHAPES if torch.Tag.pointwise in overload.tags else _SHAPES[:1]:
        values = [(argument, _value(schema, argument, partial(make, *shape))) for argument in needed]
        positional = [value for argument, value in values if not argument.kwarg_only]
        if not positional:
            raise NoSamples(f"{schema.name} takes no tensor")
        yield *positional, {argument.name: value for argument, value in values if argument.kwarg_only}


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


def require_acceptance(overload: torch._ops.OpOverload) -> None:
    """Check that calls with made-up arguments return, or are refused, without creating a tensor here.

    Raises:
        NoSamples: the schema gives none; or a call ends the process, or finds an index that is out of range.
    """
    list(made_up_arguments(overload, lambda *shape: None))  # each argument has a value, whatever the tensors are
    if end := _end(overload):
        raise NoSamples(f"{overload._schema.name}: made-up arguments end in {end}; write samples")


@functools.cache
def _end(overload: torch._ops.OpOverload) -> str:
    """Call an operator in another process, once. Return how that ends; empty if well."""
    # A fork has imported torch, and has what tests register.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call_all, args=(overload, sender))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: of pytest-xdist
        process.start()
    sender.close()
    process.join(_LONGEST)
    if process.exitcode is None:
        process.kill()
        process.join()
        return f"no result in {_LONGEST} seconds"
    if process.exitcode < 0:
        return signal.Signals(-process.exitcode).name
    return f"exit code {process.exitcode}" if process.exitcode else str(receiver.recv())


def _call_all(overload: torch._ops.OpOverload, sender: Connection) -> None:
    """Call an operator in each way; then send the first error about an index, or nothing."""
    faulthandler.disable()
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(_MEMORY)
    torch.set_num_threads(1)  # a fork has no threads of OpenMP
    warnings.simplefilter("ignore")
    makers: list[Make] = [partial(make_of, dtype=dtype, device="cpu", requires_grad=True) for dtype in DTYPES]
    makers += [partial(make_of, dtype=dtype, device="cpu", low=far, high=far + 1) for dtype, far in _FAR.items()]
    every = (arguments for make in makers for arguments in made_up_arguments(overload, make))
    errors = (_error_of_index(overload, positional, named) for *positional, named in every)
    sender.send(next(filter(None, errors), ""))


def _error_of_index(overload: torch._ops.OpOverload, positional: Sequence[Any], named: dict[str, Any]) -> str:
    """Call an operator and differentiate it. Return an error about an index; an error in a formula is for tests."""
    try:
        wanted = [each for each in tensors_of(overload(*positional, **named)) if each.requires_grad]
        with contextlib.suppress(Exception):
            torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])
    except Exception as error:
        if isinstance(error, IndexError) or re.search(r"out of (range|bounds)", str(error)):
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return ""


def limit_memory(more: int) -> None:
    """Make allocations fail that need more than ``more`` in addition to the memory in use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
