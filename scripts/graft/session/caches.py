"""Clear torch's caches of operator data, and update what cannot be cleared."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..base import private_names

_KEY = "_graft_key"


def forget(operators: Iterable[str] | None) -> None:
    """Clear data that torch derived from operators, such as ``aten::soft_clip``, and from their kernels and rules.

    None stands for all operators. Call it after texts have run or were undone.
    """
    import torch

    bases = None if operators is None else {_base(name) for name in operators}
    for module, names in private_names.caches(torch.__version__).items():
        for name in names if module in sys.modules else ():
            _clear(_found(sys.modules[module], name))
    for op in torch._ops.get_cached_ops():
        op._dispatch_cache.clear()
    _forget_signatures(bases)
    _forget_shardings()
    _renew_decompositions(bases)
    _forget_fallbacks(bases)


def _base(name: str) -> str:
    return name.partition(".")[0]


def _found(module: Any, name: str) -> Any:
    """Look up a dotted name in a module; None if it is missing."""
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _clear(function: Any) -> None:
    """Empty the cache of a function, and of the functions that it wraps."""
    while function is not None:
        if clear := getattr(function, "cache_clear", None):
            clear()
        function = getattr(function, "__wrapped__", None)


def _forget_signatures(bases: set[str] | None) -> None:
    if module := sys.modules.get("torch.fx.operator_schemas"):
        signatures = getattr(module, "_SCHEMA_TO_SIGNATURE_CACHE", {})
        for key in [key for key in signatures if bases is None or key[0] in bases]:
            signatures.pop(key, None)


def _forget_shardings() -> None:
    """Clear DTensor's caches of shardings: those of its propagator, in Python, and the one in C++."""
    import torch

    api = sys.modules.get("torch.distributed.tensor._api")
    propagator = _found(api, "DTensor._op_dispatcher.sharding_propagator")
    if propagator is None:
        return
    if clear := getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", None):
        clear()
    for value in list(vars(propagator).values()):
        _clear(value)


def _is_of(op: Any, bases: set[str] | None) -> bool:
    """Return whether a table's key is an overload, or the packet, of one of the operators; None for any operator."""
    schema = getattr(op, "_schema", None)
    return bases is None or getattr(op, "_qualified_op_name", None) in bases or getattr(schema, "name", None) in bases


def _is_added(op: Any) -> bool:
    """Return whether an operator is not PyTorch's own; True if there is no list of added operators."""
    added = sys.modules.get("torch._added_operators")
    names = {_base(name) for name in added.OPERATORS} if added else None
    return names is None or any(_is_of(op, {name}) for name in names)


def _renew_decompositions(bases: set[str] | None) -> None:
    """Update the copies of PyTorch's tables that Inductor made when it was imported. Keep its own decompositions."""
    import torch

    if not (inductor := sys.modules.get("torch._inductor.decomposition")):
        return
    core, tables = torch._decomp.core_aten_decompositions(), torch._decomp.decomposition_table
    _follow(inductor.decompositions, core, bases)
    for op in inductor.inductor_decompositions:
        if _is_of(op, bases) and op in tables:
            inductor.inductor_decompositions[op] = tables[op]
            if op in inductor.decompositions and not _is_inductors(inductor.decompositions[op]):
                inductor.decompositions[op] = tables[op]


def _follow(copies: dict[Any, Any], table: Any, bases: set[str] | None) -> None:
    """Make Inductor's copy of a decomposition table follow the table. Keep Inductor's own entries, and add no
    operator of PyTorch's that Inductor left out.
    """
    for op in [op for op in dict.fromkeys([*copies, *table]) if _is_of(op, bases)]:
        if op in copies and _is_inductors(copies[op]):
            continue
        if op in table and (op in copies or _is_added(op)):
            copies[op] = table[op]
        elif op not in table and _is_added(op):
            del copies[op]


def _is_inductors(function: Any) -> bool:
    return bool(getattr(function, "__module__", None) == "torch._inductor.decomposition")


def _forget_fallbacks(bases: set[str] | None) -> None:
    """Remove lowerings that only call the kernel: Inductor makes one for each operator that it finds without any."""
    if not (lowering := sys.modules.get("torch._inductor.lowering")):
        return
    for op in [op for op in lowering.lowerings if _is_of(op, bases) and _is_added(op)]:
        if getattr(lowering.lowerings[op], "_is_fallback_handler", False):
            for name in ("lowerings", "_maybe_layout_constraints"):
                getattr(lowering, name, {}).pop(op, None)
            for name in ("fallbacks", "needs_realized_inputs"):
                getattr(lowering, name, set()).discard(op)


def set_key(text: str) -> None:
    """Include a text in the keys of compilers' caches on disk; an empty text leaves upstream's keys."""
    import torch

    setattr(torch, _KEY, text)
    keep_key()


def keep_key() -> None:
    """Include the text in ``torch_key``, in all modules that have imported it by now."""
    codecache = sys.modules.get("torch._inductor.codecache")
    upstreams = getattr(codecache, "torch_key", None)
    if upstreams is None or hasattr(upstreams, _KEY):
        return

    @functools.wraps(upstreams)
    def torch_key() -> bytes:
        import torch

        key: bytes = upstreams()
        text = getattr(torch, _KEY, "")
        return hashlib.sha256(key + text.encode()).digest() if text else key

    setattr(torch_key, _KEY, True)
    for module in [module for name, module in list(sys.modules.items()) if name.startswith("torch.")]:
        if isinstance(module, types.ModuleType) and vars(module).get("torch_key") is upstreams:
            module.torch_key = torch_key  # type: ignore[attr-defined]


# The function to call after this module is imported.
BEHIND: dict[str, Callable[[], None]] = {"torch._inductor.codecache": keep_key}


def update_packets(changed: Iterable[str], gone: Iterable[str]) -> None:
    """Update ``torch.ops`` after operators, such as ``aten::soft_clip.out``, were defined again or removed.

    A packet, such as ``torch.ops.aten.soft_clip``, stays the same object. Changed overloads become new objects.
    """
    changed, gone = set(changed), set(gone)
    for base in {_base(name) for name in changed | gone}:
        overloads = {name.partition(".")[2] or "default" for name in changed | gone if _base(name) == base}
        for namespace, packet in _packets(base):
            _drop_overloads(packet, overloads)
            _refresh(namespace, packet, base)


def _packets(base: str) -> Iterator[tuple[Any, Any]]:
    import torch

    name, _, short = base.partition("::")
    namespace = vars(torch.ops).get(name)
    if namespace is not None and short in vars(namespace):
        yield namespace, vars(namespace)[short]


def _drop_overloads(packet: Any, overloads: set[str]) -> None:
    import torch

    for overload in overloads:
        torch._ops.get_cached_ops().discard(vars(packet).pop(overload, None))
        while overload in packet._dir:
            packet._dir.remove(overload)


def _refresh(namespace: Any, packet: Any, base: str) -> None:
    import torch

    op = names = None
    with contextlib.suppress(RuntimeError):
        op, names = torch._C._jit_get_operation(base)
    if not names:
        delattr(namespace, packet.__name__)
        while packet.__name__ in namespace._dir:
            namespace._dir.remove(packet.__name__)
        return
    torch.jit._builtins._register_builtin(op, base)
    op.__module__ = packet._op.__module__
    _keep_hash(packet)
    packet._op, packet._overload_names = op, names


def _keep_hash(packet: Any) -> None:
    """Keep the hash of a packet, which is a key of tables: it is that of its function, which is about to change."""
    kind: Any = type(packet)
    if not hasattr(kind.__hash__, _KEY):
        upstreams = kind.__hash__

        @functools.wraps(upstreams)
        def __hash__(self: Any) -> int:
            kept: int | None = vars(self).get("_graft_hash")
            return upstreams(self) if kept is None else kept

        setattr(__hash__, _KEY, True)
        kind.__hash__ = __hash__
    vars(packet)["_graft_hash"] = hash(packet)
