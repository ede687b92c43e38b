# `with torch.device(...)` has a handwritten list of the functions that create tensors.
from torch import _added_operators


def _with_added_operators(upstreams):
    """Extend ``_device_constructors`` with the operators added to this torch."""

    # Only when it is called: this module may be imported before torch is complete.
    @functools.lru_cache(1)
    @functools.wraps(upstreams)
    def _device_constructors():
        return {*upstreams(), *map(_added_operators.resolve, _added_operators.FACTORIES)}

    return _device_constructors


_device_constructors = _with_added_operators(_device_constructors)
