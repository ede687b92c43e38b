# The parameters of kernels, as in api/cpp.py, which may be half imported here.
import functools


def _write_optionals(upstreams):
    """Make ``argumenttype_type`` return the same type for an optional tensor that is written."""

    @functools.wraps(upstreams)
    def argumenttype_type(t, *, mutable, **others):
        return upstreams(t, mutable=mutable and str(t) != "Tensor?", **others)

    return argumenttype_type


argumenttype_type = _write_optionals(argumenttype_type)
