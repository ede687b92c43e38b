"""depthwise_conv2d: the depthwise layers of networks, compared with conv2d with groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import conv2d

from .case import Case, Side, compared


@dataclass(frozen=True)
class ConvLayer:
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


# The channels, size, kernel and stride of the layers of MobileNetV3, EfficientNet-B0 and ConvNeXt-T.
_NETWORKS = [
    *((16, 112, 3, 1), (64, 112, 3, 2), (72, 56, 5, 2), (120, 28, 5, 1), (200, 14, 3, 1), (672, 14, 5, 2)),
    *((960, 7, 5, 1), (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (240, 28, 5, 1), (240, 28, 3, 2)),
    *((480, 14, 3, 1), (1152, 7, 5, 1), (96, 56, 7, 1), (192, 28, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1)),
]
LAYERS = [ConvLayer(*sizes) for sizes in _NETWORKS]
# The layers of the peers' published figures, which are also measured in other dtypes, and layers without a special
# kernel in peers.
FEW = [ConvLayer(96, 56, 7), ConvLayer(144, 56, 3), ConvLayer(240, 28, 5), ConvLayer(144, 28, 3, 2)]
OTHERS = [ConvLayer(144, 28, 3, dilation=2), ConvLayer(96, 28, 3, multiplier=2)]
# Filters of grey and colored images, and a few channels more.
FILTERS = [ConvLayer(*sizes, 3) for sizes in ((1, 224), (3, 224), (8, 112), (10, 224), (12, 112))]
# One pixel, one tap, and images larger than the caches with few channels for a pixel.
EXTREMES = [ConvLayer(1024, 1, 3), ConvLayer(64, 56, 1)]
# By batch.
LARGE = {64: ConvLayer(32, 56, 3), 32: ConvLayer(24, 56, 3)}
FORMATS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}


_OTHER_DTYPES = (torch.bfloat16, torch.half, torch.double)


def cases() -> Iterator[Case]:
    """Every layer in float, with one image and with 32; some in other dtypes."""
    # Layers, batch, dtypes; group and aim, if these are not the layer's own.
    kinds: list[tuple[Sequence[ConvLayer], int, Sequence[torch.dtype], str | None, float]] = [
        (LAYERS, 1, [torch.float], None, 0),
        (OTHERS, 1, [torch.float], ", dilation or multiplier 2", 4),
        (FILTERS, 1, [torch.float], ", few channels", 0.95),
        (EXTREMES, 1, [torch.float], ", one pixel or tap", 0.95),
        (FEW, 1, _OTHER_DTYPES, "", 0),
        (FILTERS[:2], 1, _OTHER_DTYPES, ", few channels", 0.95),
        (LAYERS, 32, [torch.float], ", batch 32", 0),
        *(([layer], batch, (torch.float, torch.bfloat16), f", batch {batch}", 0.95) for batch, layer in LARGE.items()),
    ]
    for layers, batch, dtypes, group, aim in kinds:
        for layer, dtype, layout, step in itertools.product(layers, dtypes, FORMATS, ("forward", "backward")):
            kind = f"{str(dtype).removeprefix('torch.')} {layout}"
            own = f", {layer.kernel}x{layer.kernel}" + (f" stride {layer.stride}" if layer.kernel == 3 else "")
            make = partial(_make, step, layer, batch, dtype, layout)
            yield Case(
                *("depthwise_conv2d", "F.conv2d", f"{batch}x{layer} {kind}", step),
                *(aim or _aim(layer, dtype, layout, step), batch * layer.channels * layer.size**2, make),
                kind + (own if group is None else group),
            )


def _aim(layer: ConvLayer, dtype: torch.dtype, layout: str, step: str) -> float:
    """The minimum for a usual layer."""
    if dtype == torch.double:
        return 4 if layout == "NCHW" else 20
    if dtype == torch.half:
        # Without these instructions oneDNN has no kernel, and PyTorch loops over the groups.
        return 1.4 if torch.ops.mkldnn._is_mkldnn_fp16_supported() else 10 if layout == "NCHW" else 20
    if dtype == torch.bfloat16:
        return 1.5
    return 1.0 if step == "forward" else 4 if layer.kernel > 3 else 1.1


def _make(step: str, layer: ConvLayer, batch: int, dtype: torch.dtype, layout: str) -> tuple[Side, Side]:
    x = torch.randn(batch, layer.channels, layer.size, layer.size).to(dtype, memory_format=FORMATS[layout])
    outputs = layer.channels * layer.multiplier
    weight, bias = torch.randn(outputs, 1, layer.kernel, layer.kernel).to(dtype), torch.randn(outputs).to(dtype)
    parameters = (layer.stride, layer.dilation * (layer.kernel // 2), layer.dilation)
    return compared(
        step,
        lambda x, weight, bias: torch.depthwise_conv2d(x, weight, bias, *parameters),
        lambda x, weight, bias: conv2d(x, weight, bias, *parameters, groups=layer.channels),
        *(tensor.requires_grad_() for tensor in (x, weight, bias)),
    )
