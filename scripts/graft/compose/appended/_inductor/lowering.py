# A lowering for a name is registered for all its overloads. An overload added to this torch is a different operator
# with the same name, so the lowering does not apply. Without a lowering, Inductor calls the kernel.
from torch import _added_operators


def _leave_added_overloads(upstreams):
    """Make ``get_overloads`` skip added overloads, unless they are requested explicitly."""

    def get_overloads(aten_fn):
        given = aten_fn if isinstance(aten_fn, (list, tuple)) else [aten_fn]
        return [fn for fn in upstreams(aten_fn) if fn in given or fn not in _added_overloads]

    return get_overloads


_added_overloads = {torch._library.utils.lookup_op(name) for name in _added_operators.OVERLOADS}
get_overloads = _leave_added_overloads(get_overloads)
for _op in _added_overloads:
    _packet = _op.overloadpacket
    _others = {_packet, *(getattr(_packet, name) for name in _packet.overloads())} - _added_overloads
    # A lowering of the native folder differs from those of upstream's name and overloads.
    if _op in lowerings and any(lowerings[_op] is lowerings.get(other) for other in _others):
        del lowerings[_op]
        foreach_ops.discard(_op)
