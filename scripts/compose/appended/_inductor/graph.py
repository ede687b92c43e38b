# An operator that Inductor neither decomposes nor lowers has to be on its list of fallbacks, or fallbacks have to be
# allowed that nobody asked for, which PyTorch's own tests of Inductor do not. An added operator is asked for.
from torch import _added_operators


def _fall_back_to_added_operators(upstreams):
    """Make ``GraphLowering.call_function`` one that always may fall back to the kernel of an added operator."""

    @functools.wraps(upstreams)
    def call_function(self, target, args, kwargs):
        is_added = isinstance(target, torch._ops.OpOverload) and target.name() in _added_operators.OPERATORS
        if config.implicit_fallbacks or target in lowerings or not is_added:
            return upstreams(self, target, args, kwargs)
        with config.patch(implicit_fallbacks=True):
            return upstreams(self, target, args, kwargs)

    return call_function


GraphLowering.call_function = _fall_back_to_added_operators(GraphLowering.call_function)
