# `with torch.device(...)` takes the functions that make tensors from a list kept by hand.
from torch import _added_operators


def _with_added_operators(upstreams):
    """Make ``_device_constructors`` one that knows the operators that were added to this torch."""

    # Not before it is called: this module may be imported when torch is not complete.
    @functools.lru_cache(1)
    @functools.wraps(upstreams)
    def _device_constructors():
        return {*upstreams(), *map(_added_operators.resolve, _added_operators.FACTORIES)}

    return _device_constructors


_device_constructors = _with_added_operators(_device_constructors)
