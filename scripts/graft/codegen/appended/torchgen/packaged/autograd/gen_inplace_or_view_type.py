# Upstream increments the versions of returned tensors. For operators of native folders that write positional arguments,
# the versions of the written ones are incremented.
import functools

from torchgen.context import native_function_manager

from .gen_trace_type import _WRITING

_WRITING_BODY = CodeTemplate(
    """\
${assign}([&]() {
  at::AutoDispatchBelowADInplaceOrView guard;
  return at::_ops::${name}::redispatch(${args});
})();
${increments}
${returns}
"""
)


def _written(f):
    """Return the positional arguments that ``f`` writes."""
    return [a for a in f.func.arguments.flat_positional if a.annotation is not None and a.annotation.is_write]


def _for_written(a, statement):
    """Return the C++ statement for the tensor of a written argument, or for each of a list; none for None."""
    if a.type.is_list_like():
        return f"for (const auto& _each : {a.name}) {{ {statement.format('_each')} }}"
    if str(a.type) == "Tensor?":
        return f"if ({a.name}.has_value() && {a.name}->defined()) {{ {statement.format('*' + a.name)} }}"
    return statement.format(a.name)


def _returns_of_writing(f):
    """Return how a kernel of ``f`` begins the call below it, and how it ends."""
    if not f.func.returns:
        return "", ""
    # An in-place operator returns the reference that it got.
    return ("", "return self;") if f.func.name.name.inplace else ("auto _returned = ", "return _returned;")


def _definition_of_writing(f):
    """Return the kernel for ADInplaceOrView."""
    assign, returns = _returns_of_writing(f)
    exprs = [a.expr for a in DispatcherSignature.from_schema(f.func).exprs()]
    return METHOD_DEFINITION.substitute(
        return_type=cpp.returns_type(f.func.returns, symint=True).cpp_type(),
        type_wrapper_name=type_wrapper_name(f),
        formals=gen_formals(f),
        type_definition_body=_WRITING_BODY.substitute(
            assign=assign,
            name=f.func.name.unambiguous_name(),
            args=", ".join(["ks & c10::after_ADInplaceOrView_keyset", *exprs]),
            increments=[_for_written(a, "increment_version({});") for a in _written(f)],
            returns=returns,
        ),
    )


def _increment_written(upstreams):
    """Make ``gen_inplace_or_view_type_env`` give operators that write positional arguments such a kernel."""

    @functools.wraps(upstreams)
    def gen_inplace_or_view_type_env(fn):
        f = fn.func
        if str(f.func.name) not in _WRITING:
            return upstreams(fn)
        with native_function_manager(f):
            registration = WRAPPER_REGISTRATION.substitute(
                unqual_operator_name_with_overload=f.func.name,
                type_wrapper_name=type_wrapper_name(f),
                class_type="ADInplaceOrView",
            )
            return {
                "ops_headers": [f"#include <ATen/ops/{f.root_name}_ops.h>"],
                "inplace_or_view_method_definitions": [_definition_of_writing(f)],
                "inplace_or_view_wrapper_registrations": [registration],
            }

    return gen_inplace_or_view_type_env


gen_inplace_or_view_type_env = _increment_written(gen_inplace_or_view_type_env)
