"""What is around a call of ``graft.load``: modes of torch, which must not see what it does, and traces, which it would
change in the middle.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..core.errors import UsageError


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let Dynamo neither trace ``function`` nor compile what it calls."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        dynamo = sys.modules.get("torch._dynamo")
        return (dynamo.disable(function) if dynamo else function)(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call


@contextmanager
def outside(what: str) -> Iterator[None]:
    """Run the body as outside of all modes of torch: devices, fake tensors, inference, autocast.

    Raises:
        UsageError: a graph is being traced, or vmap, grad or functionalization run.
    """
    import torch
    from torch.utils import _python_dispatch as dispatch

    if where := trace():
        raise UsageError(f"{what}: {where}, and operators would change in the middle", todo=f"call {what} before")
    with ExitStack() as modes:
        modes.enter_context(torch._C.DisableTorchFunction())
        modes.enter_context(dispatch._disable_current_modes())
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            modes.enter_context(torch.autocast(device, enabled=False))
        yield


def trace() -> str:
    """Return which trace or transform of torch runs; empty for none."""
    import torch
    from torch.fx.experimental import proxy_tensor

    if torch.jit.is_tracing():
        return "torch.jit.trace runs"
    if torch._C._functorch.maybe_current_level() is not None:
        return "torch.vmap or another transform of torch.func runs"
    if torch.compiler.is_compiling() or proxy_tensor.get_proxy_mode() is not None:
        return "torch.compile, torch.export or make_fx traces a graph"
    return ""
