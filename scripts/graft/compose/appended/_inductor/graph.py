# An operator that Inductor neither decomposes nor lowers must be on its list of fallbacks, unless implicit fallbacks
# are allowed, which PyTorch's own tests of Inductor forbid. For added operators fallbacks are explicit.
from torch import _added_operators


def _fall_back_to_added_operators(upstreams):
    """Make ``GraphLowering.call_function`` accept the kernel of an added operator as a fallback."""

    @functools.wraps(upstreams)
    def call_function(self, target, args, kwargs):
        is_added = isinstance(target, torch._ops.OpOverload) and target.name() in _added_operators.OPERATORS
        if config.implicit_fallbacks or target in lowerings or not is_added:
            return upstreams(self, target, args, kwargs)
        with config.patch(implicit_fallbacks=True):
            return upstreams(self, target, args, kwargs)

    return call_function


GraphLowering.call_function = _fall_back_to_added_operators(GraphLowering.call_function)
