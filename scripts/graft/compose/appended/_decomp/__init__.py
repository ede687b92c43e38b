# Inductor and torch.export decompose the operators of a handwritten list. An added operator is decomposed if it has a
# decomposition.
from torch import _added_operators


def _with_added_operators(upstreams):
    """Extend ``_core_aten_decompositions_post_autograd`` with the operators added to this torch."""

    @wraps(upstreams)
    def _core_aten_decompositions_post_autograd():
        added = [torch._library.utils.lookup_op(name) for name in _added_operators.OPERATORS]
        return {**upstreams(), **get_decompositions(added)}

    return _core_aten_decompositions_post_autograd


_core_aten_decompositions_post_autograd = _with_added_operators(_core_aten_decompositions_post_autograd)

# torch/_meta_registrations.py, which imports this module, creates meta functions of all decompositions before those of
# the added operators, which take precedence, are registered. It gets these afterwards.
_decompositions_of_added = {
    kind: {
        op: registry.pop(op)
        for op in [torch._library.utils.lookup_op(name) for name in _added_operators.OPERATORS]
        if op in registry
    }
    for kind, registry in global_decomposition_table.items()
}
