# Inductor and torch.export take the operators that they decompose from a list kept by hand. An added operator is
# decomposed if it has a decomposition.
from torch import _added_operators


def _with_added_operators(upstreams):
    """Make ``_core_aten_decompositions_post_autograd`` one that knows the operators that were added to this torch."""

    @wraps(upstreams)
    def _core_aten_decompositions_post_autograd():
        added = [torch._library.utils.lookup_op(name) for name in _added_operators.OPERATORS]
        return {**upstreams(), **get_decompositions(added)}

    return _core_aten_decompositions_post_autograd


_core_aten_decompositions_post_autograd = _with_added_operators(_core_aten_decompositions_post_autograd)

# torch/_meta_registrations.py, which imports this module, makes meta functions of all decompositions before those of
# the added operators are registered, which go first. It gets these afterwards.
_decompositions_of_added = {
    kind: {
        op: registry.pop(op)
        for op in [torch._library.utils.lookup_op(name) for name in _added_operators.OPERATORS]
        if op in registry
    }
    for kind, registry in global_decomposition_table.items()
}
