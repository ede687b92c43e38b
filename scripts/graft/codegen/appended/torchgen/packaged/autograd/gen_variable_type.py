# Upstream derives kernels for Autograd from the returned tensors. For operators of native folders that write positional
# arguments, they are derived from the written ones: the kernel checks them as for in-place operators, and gives them a
# node whose backward raises.
import functools

from torchgen.api.types import DispatcherSignature

from .gen_inplace_or_view_type import _for_written, _returns_of_writing, _written
from .gen_trace_type import _WRITING

_WRITING_BODY = CodeTemplate(
    """\
${any_requires_grad}
${checks}
${forbid_forward}
${declare}
${setup}
${assign}([&]() {
  at::AutoDispatchBelowAutograd guard;
  return at::redispatch::${name}(${args});
})();
if (grad_fn) {
  ${history}
}
${returns}
"""
)

# Integers, of which one may be written beside numbers with gradients, have no history.
_HISTORY_OF_WRITING = CodeTemplate(
    """\
for (const auto& _each : flatten_tensor_args( ${tensors} )) {
  if (_each.defined() && isDifferentiableType(_each.scalar_type())) {
    ${kind}_history(_each, grad_fn);
  }
}
"""
)


def _history_of_writing(f):
    """Return the statements that give what ``f`` writes and returns a node."""
    returned = [] if f.func.name.name.inplace else list(f.func.returns)
    value = "_returned" if len(returned) == 1 else "std::get<{}>(_returned)"
    tensors = [value.format(i) for i, each in enumerate(returned) if each.type.is_tensor_like()]
    history = [_HISTORY_OF_WRITING.substitute(tensors=[a.name for a in _written(f)], kind="rebase")]
    return [*history, *([_HISTORY_OF_WRITING.substitute(tensors=tensors, kind="set")] if tensors else [])]


def _definition_of_writing(f):
    """Return the kernel for Autograd."""
    assign, returns = _returns_of_writing(f)
    tensors = [a for a in f.func.arguments.flat_all if a.type.is_tensor_like()]
    names, name = [a.name for a in tensors], cpp.name(f.func)
    tangents = [
        (FW_DERIVATIVE_TENSORLIST_CHECK_TEMPLATE if a.type.is_list_like() else FW_DERIVATIVE_CHECK_TEMPLATE).substitute(
            req_inp=a.name
        )
        for a in tensors
    ]
    setup = ASSIGN_GRAD_FN.substitute(op="NotImplemented", op_ctor=f'"{name}"', args_with_derivatives=names)
    exprs = [a.expr for a in DispatcherSignature.from_schema(f.func).exprs()]
    body = _WRITING_BODY.substitute(
        any_requires_grad=SETUP_ANY_REQUIRES_GRAD.substitute(
            args_with_derivatives=names, extra_differentiability_conditions=""
        ),
        checks=[_for_written(a, "check_inplace({}, _any_requires_grad);") for a in _written(f)],
        forbid_forward=FW_DERIVATIVE_FORBID_TEMPLATE.substitute(
            cond=" || ".join(tangents), name=name, msg="because it writes its arguments"
        ),
        declare=DECLARE_GRAD_FN.substitute(op="NotImplemented"),
        setup=SETUP_DERIVATIVE.substitute(setup=setup.split("\n")),
        assign=assign,
        name=cpp.name(f.func, faithful_name_for_out_overloads=True, symint_overload=f.func.has_symint()),
        args=", ".join(["ks & c10::after_autograd_keyset", *exprs]),
        history=_history_of_writing(f),
        returns=returns,
    )
    return METHOD_DEFINITION.substitute(
        return_type=cpp.returns_type(f.func.returns, symint=True).cpp_type(),
        type_wrapper_name=type_wrapper_name(f),
        type_definition_body=body,
        formals=gen_formals(f),
    )


def _refuse_backward_of_writing(upstreams):
    """Make ``gen_variable_type_func`` give operators that write positional arguments such a kernel."""

    @functools.wraps(upstreams)
    def gen_variable_type_func(fn):
        if str(fn.func.func.name) not in _WRITING:
            return upstreams(fn)
        with native_function_manager(fn.func):
            return {
                "type_derived_method_definitions_Default": [_definition_of_writing(fn.func)],
                "wrapper_registrations_Default": [gen_wrapper_registration(fn.func, "Default")],
            }

    return gen_variable_type_func


gen_variable_type_func = _refuse_backward_of_writing(gen_variable_type_func)
