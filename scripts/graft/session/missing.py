"""Let ``torch.name`` say why an operator is not there."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def explain(torch: Any, why: Callable[[str], str]) -> None:
    """Add ``why(name)``, unless it is empty, to the AttributeError of ``torch.name``."""
    upstream = getattr(torch, "__getattr__", None)

    def __getattr__(name: str) -> Any:
        if upstream is not None:
            try:
                return upstream(name)
            except AttributeError as error:
                if not (text := why(name)):
                    raise
                raise AttributeError(f"{error}: {text}") from None
        raise AttributeError(": ".join(filter(None, [f"module 'torch' has no attribute '{name}'", why(name)])))

    # Upstream's warnings about old names name the module of their caller, this function. Filters expect torch there.
    named = {**globals(), "__name__": "torch"}
    torch.__getattr__ = types.FunctionType(__getattr__.__code__, named, closure=__getattr__.__closure__)
