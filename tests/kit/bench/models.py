"""torchvision's models as they are, with the kernels of native/faster and with PyTorch's own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..replaced import replaced
from .case import Case, Side
from .depthwise import FORMATS

_BATCH = 4
_MODELS = {
    "MobileNetV3-L": "mobilenet_v3_large",
    "EfficientNet-B0": "efficientnet_b0",
    "ConvNeXt-T": "convnext_tiny",
    "MobileNetV2": "mobilenet_v2",
    "ShuffleNetV2": "shufflenet_v2_x1_0",
    "MNASNet": "mnasnet1_0",
}
_DTYPES = {"float": torch.float, "bfloat16": torch.bfloat16}


def cases() -> Iterator[Case]:
    """Yield each model in both memory formats and dtypes; none without native/faster or torchvision."""
    if "_convolution" not in replaced():
        print('models: left out, since native/faster is not built: NATIVE="native native/faster"', file=sys.stderr)
        return
    if importlib.util.find_spec("torchvision") is None:
        print("models: left out, since pip finds no torchvision for this torch", file=sys.stderr)
        return
    for name, function in _MODELS.items():
        for step, aim in {"inference": 1.0, "training": 1.1}.items():
            for layout in FORMATS:
                for dtype in _DTYPES:
                    title, make = f"{name}, {layout} {dtype}", partial(_make, function, step, layout, dtype)
                    yield Case("models", "torchvision", title, step, aim, 0, make, title)


def _make(function: str, step: str, layout: str, dtype: str) -> tuple[Side, Side]:
    torch.manual_seed(0)
    model = getattr(_torchvision_models(), function)(weights=None)
    model = model.to(_DTYPES[dtype], memory_format=FORMATS[layout]).train(step == "training")
    x = torch.randn(_BATCH, 3, 224, 224).to(_DTYPES[dtype], memory_format=FORMATS[layout])
    run = partial(_run, model, x)
    return run, run


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
