"""Operators of PyTorch that a folder replaces parts of, compared with PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from ..made_up import tensors_of
from ..replaced import dtypes_of, replaced, replaced_op_infos, samples_of
from .case import Case, Side

_DTYPES = (torch.float, torch.bfloat16, torch.double, torch.long)
# How often the first dimension of each tensor is repeated for a larger sample.
_REPEATED = 4096


def cases() -> Iterator[Case]:
    """Yield cases of each operator: its largest sample of an OpInfo, and one with many more rows, if it takes that."""
    for info in replaced_op_infos() if replaced() else ():
        for dtype in (each for each in _DTYPES if each in dtypes_of(info)):
            samples = list(samples_of(info, dtype))
            sample = max(samples, key=lambda each: sum(t.numel() for t in tensors_of((each.input, each.args))))
            for each in (sample, sample.transform(_repeated)):
                with suppress(Exception):  # the operator does not take it
                    info(each.input, *each.args, **each.kwargs)
                    shapes = ", ".join(str(list(t.shape)) for t in tensors_of((each.input, each.args)))
                    name = f"{info.name} of {shapes} {str(dtype).removeprefix('torch.')}"
                    make = partial(_sides, info, each)
                    yield Case("replaced", "PyTorch's own", name, "forward", 0.95, 0, make, info.name)


def _repeated(value: object) -> object:
    is_taken = isinstance(value, Tensor) and value.dim() > 0
    return value.repeat(_REPEATED, *[1] * (value.dim() - 1)) if is_taken else value  # type: ignore[attr-defined]


def _sides(info: OpInfo, sample: SampleInput) -> tuple[Side, Side]:
    call = partial(info, sample.input, *sample.args, **sample.kwargs)
    return call, call
