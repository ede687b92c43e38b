"""roi_pool: compared with a serial loop over boxes, bins, channels and pixels, like torchvision's CPU kernel."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .case import Case, Function, Side, compared

_SCALE = 1 / 16


def cases() -> Iterator[Case]:
    """A feature map of a detector with many boxes, one with few, and a large map."""
    for shape, boxes in (((1, 256, 50, 68), 512), ((2, 256, 50, 68), 16), ((1, 64, 200, 272), 128)):
        name = f"{list(shape)}, {boxes} boxes, 7 x 7"
        forward = partial(_make, "forward", _serial, shape, boxes)
        backward = partial(_make, "backward", _by_scatter, shape, boxes)
        yield Case("roi_pool", "a serial loop", name, "forward", 3, math.prod(shape), forward)
        yield Case("roi_pool", "x[index]", name, "backward", 1, math.prod(shape), backward)
    for channels in (1, 3):
        shape, name = (1, channels, 512, 512), f"[1, {channels}, 512, 512], 64 boxes, 7 x 7"
        few = partial(_make, "forward", _serial, shape, 64)
        yield Case("roi_pool", "a serial loop", name, "forward", 0.95, math.prod(shape), few)
    shape, name = (2, 256, 50, 68), "[2, 256, 50, 68], 128 boxes, 7 x 7, double channels_last"
    wide = partial(_make, "backward", _by_scatter, shape, 128, torch.double, torch.channels_last)
    yield Case("roi_pool", "x[index]", name, "backward", 0.95, math.prod(shape), wide)


def _make(
    step: str,
    peer: Function,
    shape: tuple[int, int, int, int],
    count: int,
    dtype: torch.dtype = torch.float,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> tuple[Side, Side]:
    images, _, height, width = shape
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(count, 2, 2, generator=generator).sort(dim=1).values * torch.tensor([width, height]) / _SCALE
    image = torch.randint(images, (count, 1), generator=generator)
    x = torch.randn(shape, generator=generator, dtype=dtype).to(memory_format=memory_format).requires_grad_()
    return compared(step, _ours, peer, x, torch.cat([image, corners.flatten(1)], 1))


def _ours(x: Tensor, boxes: Tensor) -> Tensor:
    return torch.roi_pool(x, boxes, _SCALE, 7, 7)


def _serial(x: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    output = torch.empty(len(boxes), x.shape[1], 7, 7)
    indices = torch.empty(output.shape, dtype=torch.int32)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, boxes, output, indices)]
    lengths = [ctypes.c_int64(length) for length in (*x.shape[1:], len(boxes), 7)]
    _serial_kernel().serial_roi_pool(*pointers, *lengths, ctypes.c_float(_SCALE))
    return output, indices


@functools.cache
def _serial_kernel() -> ctypes.CDLL:
    """Return the loop, compiled for a generic processor like PyTorch's own code."""
    with tempfile.TemporaryDirectory() as folder:
        library, source = f"{folder}/serial.so", str(Path(__file__).with_name("serial_roi_pool.cpp"))
        command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O3", "-shared", "-fPIC", "-o", library, source]
        subprocess.run(command, check=True)
        return ctypes.CDLL(library)


def _by_scatter(x: Tensor, boxes: Tensor) -> Tensor:
    """Return the serial loop's gradient, by PyTorch's own scatter."""
    output, places = torch.ops.aten.roi_pool_with_indices(x.detach(), boxes, _SCALE, 7, 7)
    planes = boxes[:, 0].long()[:, None] * x.shape[1] + torch.arange(x.shape[1])
    index = planes[:, :, None, None] * (x.shape[2] * x.shape[3]) + places.clamp(min=0)
    return x.contiguous().flatten()[index].reshape(output.shape)
