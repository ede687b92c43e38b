"""Operators for PyTorch, loaded by ``import torch``. ``python -m torch._graft`` lists them."""

from ._load import autoload as autoload, include as include, library as library, require

import torch  # loads them by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0

# While it does, an error must not stop it.
if not getattr(torch.__spec__, "_initializing", False):
    require()
