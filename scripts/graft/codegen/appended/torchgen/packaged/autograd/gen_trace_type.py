# Operators of native folders that write positional arguments, by name with overload. They are recorded, although some
# return no tensor. Those that write a list are refused, since TorchScript does not know that its elements are written,
# and drops the call; but not those with composite kernels, whose calls of other operators are recorded.
import functools

_WRITING = set()
_WRITING_LISTS = set()

_REFUSAL = CodeTemplate(
    """\
TORCH_CHECK_NOT_IMPLEMENTED(
    !jit::tracer::isTracing(),
    "aten::${name}: it writes a list of tensors, and TorchScript drops such calls; ",
    "use torch.export instead of torch.jit.trace");
"""
)


def _record_writing(upstreams):
    """Make ``should_trace`` accept the operators that write positional arguments."""

    @functools.wraps(upstreams)
    def should_trace(f):
        name = str(f.func.name)
        return name not in _WRITING_LISTS and (name in _WRITING or upstreams(f))

    return should_trace


def _refuse_lists(upstreams):
    """Make ``format_prerecord_trace`` raise an error for the operators that write a list."""

    @functools.wraps(upstreams)
    def format_prerecord_trace(f):
        is_refused = str(f.func.name) in _WRITING_LISTS and not f.has_composite_kernel
        return _REFUSAL.substitute(name=f.func.name) if is_refused else upstreams(f)

    return format_prerecord_trace


should_trace = _record_writing(should_trace)
format_prerecord_trace = _refuse_lists(format_prerecord_trace)
