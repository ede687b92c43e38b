"""depthwise_conv2d: the depthwise layers of networks, compared with conv2d with groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import conv2d

from ..case import Case, Side, backward, forward


@dataclass(frozen=True)
class Layer:
    """A layer whose padding is half of its kernel.

    Args:
        channels: the number of input channels.
        size: height and width.
        kernel, stride, dilation, multiplier: the operator's arguments, equal for both axes.
    """

    channels: int
    size: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    multiplier: int = 1

    def __str__(self) -> str:
        more = f" dilation {self.dilation}" if self.dilation > 1 else ""
        more += f" multiplier {self.multiplier}" if self.multiplier > 1 else ""
        return f"{self.channels}x{self.size}x{self.size} kernel {self.kernel} stride {self.stride}{more}"


MOBILENET_V3 = [
    Layer(16, 112, 3),
    Layer(64, 112, 3, 2),
    Layer(72, 56, 5, 2),
    Layer(120, 28, 5),
    Layer(200, 14, 3),
    Layer(672, 14, 5, 2),
    Layer(960, 7, 5),
]
EFFICIENTNET_B0 = [
    Layer(32, 112, 3),
    Layer(96, 112, 3, 2),
    Layer(144, 56, 3),
    Layer(240, 28, 5),
    Layer(240, 28, 3, 2),
    Layer(480, 14, 3),
    Layer(1152, 7, 5),
]
CONVNEXT_T = [Layer(96, 56, 7), Layer(192, 28, 7), Layer(384, 14, 7), Layer(768, 7, 7)]
# The layers of the peers' published figures, which are also measured in other dtypes, and layers without a special
# kernel in peers.
FEW = [Layer(96, 56, 7), Layer(144, 56, 3), Layer(240, 28, 5), Layer(144, 28, 3, 2)]
OTHERS = [Layer(144, 28, 3, dilation=2), Layer(96, 28, 3, multiplier=2)]

NAMES = {torch.float: "float", torch.bfloat16: "bfloat16", torch.half: "half", torch.double: "double"}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def cases() -> Iterator[Case]:
    """Every layer in float, with one image and with 32; some in other dtypes."""
    for layer in [*MOBILENET_V3, *EFFICIENTNET_B0, *CONVNEXT_T, *OTHERS]:
        yield from _cases_of(layer, 1, torch.float)
    for layer in FEW:
        for dtype in (torch.bfloat16, torch.half, torch.double):
            yield from _cases_of(layer, 1, dtype)
    for layer in [*MOBILENET_V3, *EFFICIENTNET_B0, *CONVNEXT_T]:
        yield from _cases_of(layer, 32, torch.float)


def _cases_of(layer: Layer, batch: int, dtype: torch.dtype) -> Iterator[Case]:
    for memory_format in FORMATS:
        for step, how in (("forward", forward), ("backward", backward)):
            name = f"{batch}x{layer} {str(dtype).removeprefix('torch.')} {memory_format}"
            make = partial(_make, how, layer, batch, dtype, memory_format)
            aim = _aim(layer, dtype, memory_format, step)
            group = _group(layer, batch, dtype, memory_format)
            yield Case("depthwise_conv2d", "F.conv2d", name, step, aim, make, group)


def _group(layer: Layer, batch: int, dtype: torch.dtype, memory_format: str) -> str:
    told = f"{NAMES[dtype]} {'NCHW' if memory_format == 'contiguous' else memory_format}"
    if batch > 1:
        return f"{told}, batch {batch}"
    if dtype != torch.float:
        return told
    if layer in OTHERS:
        return f"{told}, dilation or multiplier 2"
    return f"{told}, {layer.kernel}x{layer.kernel}" + (f" stride {layer.stride}" if layer.kernel == 3 else "")


def _aim(layer: Layer, dtype: torch.dtype, memory_format: str, step: str) -> float:
    """The minimum for every layer."""
    if layer in OTHERS:
        return 4
    is_nchw = memory_format == "contiguous"
    if dtype == torch.double:
        return 4 if is_nchw else 20
    if dtype == torch.half:
        # Without these instructions oneDNN has no kernel, and PyTorch loops over the groups.
        return 1.4 if torch.ops.mkldnn._is_mkldnn_fp16_supported() else 10 if is_nchw else 20
    if dtype == torch.bfloat16:
        return 1.5
    return 1.0 if step == "forward" else 4 if layer.kernel > 3 else 1.1


def _make(
    how: Callable[..., tuple[Side, Side]], layer: Layer, batch: int, dtype: torch.dtype, memory_format: str
) -> tuple[Side, Side]:
    x = torch.randn(batch, layer.channels, layer.size, layer.size).to(dtype, memory_format=FORMATS[memory_format])
    outputs = layer.channels * layer.multiplier
    weight, bias = torch.randn(outputs, 1, layer.kernel, layer.kernel).to(dtype), torch.randn(outputs).to(dtype)
    parameters = (layer.stride, layer.dilation * (layer.kernel // 2), layer.dilation)
    return how(
        lambda x, weight, bias: torch.depthwise_conv2d(x, weight, bias, *parameters),
        lambda x, weight, bias: conv2d(x, weight, bias, *parameters, groups=layer.channels),
        *(tensor.requires_grad_() for tensor in (x, weight, bias)),
    )
