"""torchvision's models, with nn.Conv2d and with our operator in every depthwise layer."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.functional import depthwise_conv2d

from .case import Case, Side
from .depthwise import FORMATS

_BATCH = 4
_MODELS = {
    "MobileNetV3-L": "mobilenet_v3_large",
    "EfficientNet-B0": "efficientnet_b0",
    "ConvNeXt-T": "convnext_tiny",
}
_DTYPES = {"float": torch.float, "bfloat16": torch.bfloat16}


def cases() -> Iterator[Case]:
    """Yield each model in both memory formats and dtypes; none without torchvision."""
    if importlib.util.find_spec("torchvision") is None:
        print("models: left out, since pip finds no torchvision for this torch", file=sys.stderr)
        return
    for name, function in _MODELS.items():
        for step, aim in {"inference": 1.0, "training": 1.1}.items():
            for layout in FORMATS:
                for dtype in _DTYPES:
                    title, make = f"{name}, {layout} {dtype}", partial(_make, function, step, layout, dtype)
                    yield Case("models", "torchvision", title, step, aim, 0, make, title)


class _Depthwise(nn.Module):
    """``conv`` computed by our operator with the same parameters."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv = self.conv
        return depthwise_conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation)


def _replace(module: nn.Module) -> int:
    """Replace every depthwise layer below ``module`` by ours. Return their number."""
    replaced = 0
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d) and child.groups == child.in_channels > 1:
            setattr(module, name, _Depthwise(child))
            replaced += 1
        else:
            replaced += _replace(child)
    return replaced


def _make(function: str, step: str, layout: str, dtype: str) -> tuple[Side, Side]:
    torch.manual_seed(0)
    stock = getattr(_torchvision_models(), function)(weights=None)
    stock = stock.to(_DTYPES[dtype], memory_format=FORMATS[layout]).train(step == "training")
    ours = copy.deepcopy(stock)
    if not _replace(ours):
        raise ValueError(f"{function} has no depthwise layers")
    x = torch.randn(_BATCH, 3, 224, 224).to(_DTYPES[dtype], memory_format=FORMATS[layout])
    return partial(_run, ours, x), partial(_run, stock, x)


def _run(model: nn.Module, x: torch.Tensor) -> None:
    """Run forward, and in training backward, without keeping anything."""
    with torch.set_grad_enabled(model.training):
        result = model(x)
    if model.training:
        result.sum().backward()
        model.zero_grad()


def _torchvision_models() -> Any:
    """Import torchvision.models, even from a torchvision for CUDA (as on PyPI) with a torch for CPU.

    Such a torchvision cannot load its library, and then fails to register fake kernels for its operators. The models do
    not use them.
    """
    sys.modules.setdefault("torchvision._meta_registrations", ModuleType("torchvision._meta_registrations"))
    return importlib.import_module("torchvision.models")
