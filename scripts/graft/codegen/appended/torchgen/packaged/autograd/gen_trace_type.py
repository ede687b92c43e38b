# Operators of native folders that write positional arguments, by name with overload. They are recorded, although some
# of them return no tensor.
import functools

_WRITING = set()


def _record_writing(upstreams):
    """Make ``should_trace`` accept the operators that write positional arguments."""

    @functools.wraps(upstreams)
    def should_trace(f):
        return str(f.func.name) in _WRITING or upstreams(f)

    return should_trace


should_trace = _record_writing(should_trace)
