"""Record which operators code compiled by torch.compile uses, and make Dynamo compile only affected code again.

The state is an attribute of torch, made of plain Python objects, so that a ``graft`` that is imported again continues
with it. Hooks of an earlier import may still be installed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_STATE = "_graft_compiled"
# Prefixes of operator names that are modules in Python: torch.fft.rfft2_abs is aten::fft_rfft2_abs.
_MODULES = ("fft_", "linalg_", "special_")


def watch() -> None:
    """Install the hooks that record compiled code. Call it again after each import of a module in ``BEHIND``."""
    state = _state()
    with state.lock:
        for name, hook in _HOOKS.items():
            if name in sys.modules and name not in state.watched:
                # Skip a hook if this release lacks the name that it replaces.
                with contextlib.suppress(AttributeError):
                    hook(sys.modules[name], state)
                state.watched.add(name)


def reset(names: Iterable[str] | None) -> int:
    """Make Dynamo compile code again that used operators, such as ``aten::soft_clip``, or named them when missing.

    None stands for all code. Code that Dynamo saw but that is not recorded is included if it has one of the names.
    Return the number of code objects.
    """
    if "torch._dynamo.convert_frame" not in sys.modules:
        return 0
    from torch._dynamo import convert_frame
    from torch._dynamo.eval_frame import reset_code

    bases = None if names is None else {name.partition(".")[0] for name in names}
    attributes = _attributes(bases or ())
    with getattr(convert_frame, "compile_lock", contextlib.nullcontext()):
        skipped = _skipped(convert_frame, None if bases is None else attributes)
        codes = [*_recorded(bases, attributes), *skipped]
        for code in codes:
            reset_code(code)
    return len(codes)


def _state() -> types.SimpleNamespace:
    import torch

    if not hasattr(torch, _STATE):
        # code: id of a code object -> weak reference to it, operators in its graphs, names that no operator had.
        # saving: key of a cache entry on disk -> operators in the graph that it will have.
        fresh = types.SimpleNamespace(
            lock=threading.RLock(), watched=set(), code={}, saving={}, thread=threading.local()
        )
        setattr(torch, _STATE, fresh)
    state: types.SimpleNamespace = getattr(torch, _STATE)
    return state


def _attributes(bases: Iterable[str]) -> set[str]:
    """Return the names by which Python code calls operators: ``fft_rfft`` and ``rfft`` for ``aten::fft_rfft``."""
    names = {base.rpartition("::")[2] for base in bases}
    return names | {name.removeprefix(prefix) for name in names for prefix in _MODULES if name.startswith(prefix)}


def _recorded(bases: set[str] | None, attributes: set[str]) -> list[types.CodeType]:
    state = _state()
    with state.lock:
        found = [
            (code(), key)
            for key, (code, used, missed) in state.code.items()
            if bases is None or used & bases or missed & attributes
        ]
        for _, key in found:
            del state.code[key]
    return [code for code, _ in found if code is not None]


def _skipped(convert_frame: Any, attributes: set[str] | None) -> list[types.CodeType]:
    """Return code that Dynamo has seen, but that is not recorded, if it has one of the names; None for any code."""
    known = _state().code
    seen = [code() for code in convert_frame.input_codes.seen]
    unknown = [code for code in seen if code and id(code) not in known]
    return [code for code in unknown if attributes is None or attributes.intersection(code.co_names)]


def _watch_dynamo(module: Any, state: types.SimpleNamespace) -> None:
    graph = module.OutputGraph
    name = "call_user_compiler" if hasattr(graph, "call_user_compiler") else "_call_user_compiler"
    upstreams = getattr(graph, name)

    @functools.wraps(upstreams)
    def call_user_compiler(self: Any, graph_module: Any, *args: Any, **kwargs: Any) -> Any:
        used = _in_graph(graph_module)
        try:
            with _traced(state, used):
                return upstreams(self, graph_module, *args, **kwargs)
        finally:
            _record(state, self, used)

    setattr(graph, name, call_user_compiler)


def _watch_traces(module: Any, state: types.SimpleNamespace) -> None:
    upstreams = module.proxy_call

    @functools.wraps(upstreams)
    def proxy_call(mode: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        for used in getattr(state.thread, "traced", ()):
            used.update(_of_target(function))
        return upstreams(mode, function, *args, **kwargs)

    module.proxy_call = proxy_call


def _watch_cache(module: Any, state: types.SimpleNamespace) -> None:
    """Save the operators of a graph with its cache entry: a graph that is loaded from disk is not traced."""
    cache = module.AOTAutogradCache
    lookup, save = cache._lookup, cache.save

    @functools.wraps(lookup)
    def _lookup(key: str, *args: Any, **kwargs: Any) -> Any:
        found = lookup(key, *args, **kwargs)
        for used in getattr(state.thread, "traced", ()):
            if found is None:
                state.saving[key] = used
            else:
                used.update(getattr(found[0], "_graft_used", ()))
        return found

    @functools.wraps(save)
    def _save(key: str, entry: Any, *args: Any, **kwargs: Any) -> None:
        # An entry with a backward graph is saved when backward first runs, which compiles it.
        if used := state.saving.pop(key, None):
            entry._graft_used = frozenset(used)
        save(key, entry, *args, **kwargs)

    cache._lookup, cache.save = staticmethod(_lookup), staticmethod(_save)


_HOOKS = {
    "torch._dynamo.output_graph": _watch_dynamo,
    "torch.fx.experimental.proxy_tensor": _watch_traces,
    "torch._functorch._aot_autograd.autograd_cache": _watch_cache,
}
# The function to call after each of these modules is imported.
BEHIND: dict[str, Callable[[], None]] = dict.fromkeys(_HOOKS, watch)


@contextlib.contextmanager
def _traced(state: types.SimpleNamespace, used: set[str]) -> Iterator[None]:
    """Add to ``used`` the operators that this thread traces while the body runs.

    A composite operator that another operator calls is not traced. But Python resolves its kernel, and caches that in
    the operator's ``_dispatch_cache``.
    """
    outer = getattr(state.thread, "traced", ())
    _move_dispatched(outer)
    state.thread.traced = (*outer, used)
    try:
        yield
    finally:
        _move_dispatched(state.thread.traced)
        state.thread.traced = outer


def _move_dispatched(sets: Iterable[set[str]]) -> None:
    import torch

    for op in list(torch._ops.get_cached_ops()):
        if op._dispatch_cache:
            for used in sets:
                used.add(op._schema.name)
            op._dispatch_cache.clear()


def _record(state: types.SimpleNamespace, graph: Any, used: set[str]) -> None:
    code = graph.root_tx.f_code
    inlined = getattr(graph.tracing_context, "traced_code", None) or ()
    missed = _missing(name for each in (code, *inlined) for name in each.co_names)
    key = id(code)
    with state.lock:
        _, earlier, missed_earlier = state.code.get(key, (None, set(), set()))
        reference = weakref.ref(code, lambda _: state.code.pop(key, None))
        state.code[key] = reference, earlier | used, missed_earlier | missed


def _missing(names: Iterable[str]) -> set[str]:
    """Return the names that no operator has yet."""
    import torch

    return {*names} - _attributes(name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())


def _in_graph(graph_module: Any) -> set[str]:
    """Return the operators of a graph and of the graphs inside it."""
    used: set[str] = set()
    for module in graph_module.modules():
        for node in module.graph.nodes if hasattr(module, "graph") else ():
            if node.op in ("call_function", "call_method"):
                for target in (node.target, *node.args, *node.kwargs.values()):
                    is_named = not isinstance(target, str) or target is node.target
                    used.update(_of_target(target) if is_named else ())
    return used


def _of_target(target: Any) -> tuple[str, ...]:
    """Return the name, without overload, of the operator that a node calls; empty if it calls none."""
    if isinstance(target, str):
        return (f"aten::{target}",)
    if schema := getattr(target, "_schema", None):
        return (schema.name,)
    if name := getattr(target, "_qualified_op_name", None):
        return (name,)
    name = getattr(target, "__name__", None)
    return (f"aten::{name}",) if isinstance(name, str) else ()
