# Pointwise operators added to this torch: their C++ meta kernels infer shapes with TensorIterator, which does not
# support symbolic shapes. If a Python meta function can call the kernel that it replaces, torch/_meta_registrations.py
# registers one. Older releases, where it cannot, get one for fake tensors.
from torch import _added_operators


def _fast_added_pointwise(op):
    # The kernel checks the other arguments and promotes types in the same way for every shape.
    def of_size_one(tensor):
        return torch.empty([1] * tensor.dim(), dtype=tensor.dtype, device="meta")

    def fast_added_pointwise(mode, *args, **kwargs):
        from torch._prims_common import compute_elementwise_output_strides
        from torch._refs import _broadcast_shapes
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._pytree import tree_leaves, tree_map_only

        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        small_args, small_kwargs = tree_map_only(torch.Tensor, of_size_one, (args, kwargs))
        dtype = op(*small_args, **small_kwargs).dtype
        with mode:
            shape = _broadcast_shapes(*(tensor.shape for tensor in tensors))
            strides = compute_elementwise_output_strides(*(tensor.expand(shape) for tensor in tensors))
            device, _ = FakeTensor._find_common_device(op, leaves)
            return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return fast_added_pointwise


def _with_added_operators(upstreams):
    """Extend ``get_fast_op_impls`` with the operators added to this torch."""

    @functools.lru_cache(None)
    @functools.wraps(upstreams)
    def get_fast_op_impls():
        added = [] if hasattr(torch.library, "get_kernel") else _added_operators.POINTWISE
        ops = [torch._library.utils.lookup_op(name) for name in added]
        return {**upstreams(), **{op: _fast_added_pointwise(op) for op in ops if op not in torch._decomp.meta_table}}

    return get_fast_op_impls


get_fast_op_impls = _with_added_operators(get_fast_op_impls)


def _makes_without_device(func):
    """Return whether an added operator takes no tensor and no device, and returns a tensor, by a kernel that calls
    other operators.
    """
    return (
        func.name() in _added_operators.OPERATORS
        and _is_tensor_constructor(func)
        and not any(argument.name == "device" for argument in func._schema.arguments)
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeExplicitAutograd")
    )


def _make_without_device(fake_mode, func, *args, **kwargs):
    with fake_mode:
        return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


# Upstream takes it for a factory, and calls it with a device.
op_implementations_checks.insert(0, (_makes_without_device, _make_without_device))
