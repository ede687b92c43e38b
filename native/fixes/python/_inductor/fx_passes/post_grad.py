# pytorch#198031: of `y = x.clone(); op(y, x)`, where op writes one of them, the clone was dropped while nothing is
# written in place. Then op wrote in place, and read the same storage. Such clones stay.
_remove_noops_of_pytorch = remove_noop_ops


def _needed_clones(graph):
    """Return the clones between what an operator reads and what it writes."""
    from torch._higher_order_ops.auto_functionalize import get_mutable_args

    first, second = torch.ops.higher_order.auto_functionalized, torch.ops.higher_order.auto_functionalized_v2
    clones = [node for node in graph.nodes if node.target is torch.ops.aten.clone.default]
    needed = []
    for node in [each for each in graph.nodes if clones and each.target in (first, second)]:
        names = ["_all_bases"] if node.target is second else get_mutable_args(node.args[0])[0]
        written, read = [], []
        for name, value in node.kwargs.items():
            torch.fx.node.map_arg(value, (written if name in names else read).append)
        written, read = ({get_node_storage(each) for each in some} - {None} for some in (written, read))
        for clone in clones:
            source, own = get_node_storage(clone.args[0]), get_node_storage(clone)
            if (own in read and source in written) or (own in written and source in read):
                needed.append(clone)
    return needed


def _needed_clone(*args, **kwargs):
    """Stands for aten.clone while clones are removed."""
    return torch.ops.aten.clone.default(*args, **kwargs)


def remove_noop_ops(graph):
    needed = _needed_clones(graph)
    for clone in needed:
        clone.target = _needed_clone
    _remove_noops_of_pytorch(graph)
    for clone in needed:
        clone.target = torch.ops.aten.clone.default
