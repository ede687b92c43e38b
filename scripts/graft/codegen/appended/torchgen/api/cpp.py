# No operator of upstream's writes an optional tensor, and its C++ type differs here and in api/native.py. For operators
# of native folders it is that of any other optional tensor, from which the dispatcher infers `Tensor?`.
import functools


def _write_optionals(upstreams):
    """Make ``argumenttype_type`` return the same type for an optional tensor that is written."""

    @functools.wraps(upstreams)
    def argumenttype_type(t, *, mutable, **others):
        return upstreams(t, mutable=mutable and str(t) != "Tensor?", **others)

    return argumenttype_type


argumenttype_type = _write_optionals(argumenttype_type)
