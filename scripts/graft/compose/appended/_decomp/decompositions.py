# A decomposition for a name is registered for all its overloads. An overload added to this torch is a different
# operator with the same name, so the decomposition does not apply. This runs before the native folder's own
# decompositions, so that they can be registered.
from torch import _added_operators, _decomp


def _leave_added_overloads(upstreams):
    """Make ``_add_op_to_registry`` skip added overloads, unless they are registered explicitly."""

    @functools.wraps(upstreams)
    def _add_op_to_registry(registry, op, fn):
        is_packet = isinstance(op, torch._ops.OpOverloadPacket)
        for each in [getattr(op, name) for name in op.overloads()] if is_packet else [op]:
            if not (is_packet and each.name() in _added_operators.OVERLOADS):
                upstreams(registry, each, fn)

    return _add_op_to_registry


# torch._decomp imports this module first: everything registered so far is upstream's.
_decomp._add_op_to_registry = _leave_added_overloads(_decomp._add_op_to_registry)
for _registry in _decomp.global_decomposition_table.values():
    for _name in _added_operators.OVERLOADS:
        _registry.pop(torch._library.utils.lookup_op(_name), None)
