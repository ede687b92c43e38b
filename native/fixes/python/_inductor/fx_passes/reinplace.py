# pytorch#198031: of `y = x.clone(); op(y, x)` the clone is dropped while nothing is written in place. Then op
# writes its argument in place, and reads the same storage. Here what such an operator reads is cloned again.
_reinplace_of_pytorch = reinplace_inplaceable_ops_core


def reinplace_inplaceable_ops_core(graph):
    from torch._higher_order_ops.auto_functionalize import get_mutable_args

    first, second = torch.ops.higher_order.auto_functionalized, torch.ops.higher_order.auto_functionalized_v2
    for node in [each for each in graph.nodes if each.target in (first, second)]:
        names = ["_all_bases"] if node.target is second else get_mutable_args(node.args[0])[0]
        written = [each for name in names for each in pytree.tree_leaves(node.kwargs[name]) if each is not None]
        storages = {get_node_storage(each) for each in written} - {None}

        def cloned(read, node=node, storages=storages):
            if get_node_storage(read) not in storages:
                return read
            with graph.inserting_before(node):
                clone = graph.call_function(torch.ops.aten.clone.default, (read,))
            clone.meta["val"] = read.meta["val"].clone()
            return clone

        read = {name: each for name, each in node.kwargs.items() if name not in names}
        node.kwargs = {**node.kwargs, **torch.fx.node.map_arg(read, cloned)}
    _reinplace_of_pytorch(graph)
