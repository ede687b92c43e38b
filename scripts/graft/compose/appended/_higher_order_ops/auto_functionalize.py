# Operators of aten are refused: upstream's own have kernels for functionalization. Operators added to this torch that
# write positional arguments have none, and are handled as those of other namespaces.
import functools

from torch import _added_operators


def _accept_added_operators(upstreams):
    """Make ``can_auto_functionalize`` accept the added operators that write positional arguments."""

    @functools.wraps(upstreams)
    def can_auto_functionalize(op):
        if not isinstance(op, OpOverload) or op.name() not in _added_operators.WRITING:
            return upstreams(op)
        # What upstream asks of the results of operators of other namespaces.
        return all(each.alias_info is None and type(each.type) is torch.TensorType for each in op._schema.returns)

    return can_auto_functionalize


can_auto_functionalize = _accept_added_operators(can_auto_functionalize)


def _return_two(upstreams):
    """Make ``auto_functionalized_v2_dense``, of an added operator that returns one tensor and writes none since all are
    None, return it twice where Inductor calls it, whose pattern matcher takes a tuple of one for the tensor itself.
    """

    @functools.wraps(upstreams)
    def auto_functionalized_v2_dense(mutable_op, *only_cloned, **kwargs):
        results = upstreams(mutable_op, *only_cloned, **kwargs)
        # Only Inductor says what to clone.
        is_added = bool(only_cloned) and isinstance(mutable_op, OpOverload)
        is_alone = len(results) == 1 and results[0] is not None
        return results * 2 if is_alone and is_added and mutable_op.name() in _added_operators.WRITING else results

    return auto_functionalized_v2_dense


auto_functionalized_v2_dense = _return_two(auto_functionalized_v2_dense)
