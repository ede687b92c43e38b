"""Operators for PyTorch, which ``import torch`` loads. ``python -m torch._graft`` names them."""

from ._load import autoload

import torch  # loads them by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0  # noqa: F401

autoload()
