# Since 2.12, PyTorch's rule for pointwise operators is also that of added ones. It shards positional tensors; DTensor
# never shards keyword-only ones again, so each rank would compute its part with all of them, or with other parts.
from torch import _added_operators


def _register_added(register):
    """Register upstream's rule for added operators that it has not found, as those that were loaded later, and make it
    an error that keyword-only tensors are given.
    """
    import dataclasses
    import functools

    from torch.distributed.tensor._api import DTensor

    rules = DTensor._op_dispatcher.sharding_propagator.op_single_dim_strategy_funcs
    for name in _added_operators.OPERATORS:
        op = torch._library.utils.lookup_op(name)
        if torch.Tag.pointwise not in op.tags:
            if op in pointwise_ops:  # it was pointwise when this module was imported, and was edited since
                rules.pop(op, None)
            continue
        if op not in rules:
            register(op)
        if any(each.kwarg_only and not each.is_out for each in op._schema.arguments):
            rule = rules[op]
            rules[op] = dataclasses.replace(rule, func=functools.partial(_of_positional_tensors, rule.func))


def _of_positional_tensors(rule, op, args, kwargs):
    """Call a rule; it is an error that a keyword-only tensor is given."""
    from torch.distributed.tensor._dtensor_spec import TensorMeta

    for argument in op._schema.arguments:
        if argument.kwarg_only and not argument.is_out and isinstance(kwargs.get(argument.name), TensorMeta):
            raise NotImplementedError(
                f"{op}: DTensor has no rule for a pointwise operator with the keyword-only tensor `{argument.name}`. "
                f"Give it `{argument.name}` before the `*` of the schema, or write a rule into "
                "python/distributed/tensor/_ops"
            )
    return rule(op, args, kwargs)


if "_register_single_dim_pointwise" in globals():
    _register_added(globals()["_register_single_dim_pointwise"])
