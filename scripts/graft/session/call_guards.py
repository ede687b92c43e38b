"""Guard calls of ``graft.load``: hide them from torch's modes, refuse them inside traces, which they would change in
the middle, and delay Ctrl-C, which would leave a load half done.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from ..core.errors import GraftError, UsageError

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Let Dynamo neither trace ``function`` nor compile what it calls. The traceback of its ``GraftError`` ends at the
    caller's line.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        wait_for_imports()
        disable = getattr(sys.modules.get("torch._dynamo"), "disable", lambda function: function)
        try:
            result: R = disable(function)(*arguments, **named)
        except GraftError as error:
            raise error.with_traceback(None) from None
        return result

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    # Dynamo shows it in its error where graph breaks are not allowed.
    reason = f"graft.{function.__name__} exchanges operators, which no graph can hold: call it before"
    call._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    return call


# Arguments of torch.utils.cpp_extension, and what to use here instead.
_THEIRS = {
    "extra_ldflags": "`libraries` in the folder's pyproject.toml",
    "sources": "the native folder, which has all sources",
    "cpp_sources": "`cpp`",
    "cuda_sources": "`cuda`",
    "with_cuda": "`cuda`, or the folder's `cuda/`: they are compiled if torch has CUDA",
}


def in_terms_of_graft(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` raise a TypeError that names the replacement of an argument of torch.utils.cpp_extension."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for name in named:
            if name in _THEIRS and name not in known:
                raise TypeError(f"graft.{function.__name__}() has no argument {name}; use {_THEIRS[name]}")
        return function(*arguments, **named)

    return call


def wait_for_imports() -> None:
    """Wait until other threads have imported torch's modules, as an optimizer's first step imports Dynamo. Until then,
    modules lack names that a load looks for, and names that are added later would look like changes.
    """
    for name, module in list(sys.modules.items()):
        is_torchs = name == "torch" or name.startswith("torch.")
        if is_torchs and getattr(getattr(module, "__spec__", None), "_initializing", False):
            with suppress(ImportError):  # it fails in that thread, too
                importlib.import_module(name)


@contextmanager
def outside(what: str) -> Iterator[None]:
    """Run the body outside of all modes of torch: devices, fake tensors, inference, autocast.

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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the body. A second Ctrl-C interrupts at once."""
    upstreams = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(upstreams):
        yield
        return
    waiting: list[tuple[int, Any]] = []

    def wait(number: int, frame: Any) -> None:
        if waiting:
            upstreams(number, frame)
        else:
            waiting.append((number, frame))

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, upstreams)
        if waiting:
            upstreams(*waiting[0])


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
