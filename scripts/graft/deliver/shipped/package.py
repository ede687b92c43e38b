"""Operators for PyTorch, loaded by ``import torch``. ``python -m torch._graft`` lists them."""

from ._load import require

import torch  # loads them by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0  # noqa: F401

require()
