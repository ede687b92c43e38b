# Meta functions of added operators. Those of the native folder are registered after upstream's activate_meta().
from torch import _added_operators
from torch._decomp import _decompositions_of_added


def _meta_in_cpp(op):
    """Return a function that calls the C++ meta kernel even if a Python one replaces it; None if that is impossible."""
    if hasattr(torch.library, "get_kernel"):
        kernel, keys = torch.library.get_kernel(op, "Meta"), torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
        return lambda *args, **kwargs: kernel.call_boxed(keys, *args, **kwargs)
    if not op._schema.is_mutable:
        return None  # see torch/_subclasses/fake_impls.py
    packet = getattr(getattr(torch.ops, op.namespace), op.overloadpacket.__name__.removesuffix("_"))
    types = [argument.type for argument in op._schema.arguments]
    overloads = [getattr(packet, name) for name in packet.overloads()]
    functional = next(each for each in overloads if [a.type for a in each._schema.arguments] == types)

    def in_place(self, *args, **kwargs):
        result = functional(self, *args, **kwargs)
        _check_shape_of_result(self, result.shape)
        torch._check(
            torch.can_cast(result.dtype, self.dtype),
            lambda: f"result type {result.dtype} can't be cast to the desired output type {self.dtype}",
        )
        return self

    return in_place


# Python compares the elements of two tuples before their lengths, which would add a guard on a symbolic number.
def _is_shape(shape, other):
    return len(shape) == len(other) and utils.is_same_shape(shape, other)


def _check_shape_of_result(self, shape):
    torch._check(
        _is_shape(self.shape, shape),
        lambda: f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(shape)}",
    )


def _register_added_pointwise(op, in_cpp):
    """Register a Python meta function in addition to the C++ one, whose TensorIterator does not support symbolic
    shapes.
    """

    # The kernel checks the other arguments and promotes types in the same way for every shape.
    def of_size_one(tensor):
        return torch.empty([1] * tensor.dim(), dtype=tensor.dtype, device="meta")

    @register_meta(op)
    def meta(*args, **kwargs):
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not any(tensor._has_symbolic_sizes_strides for tensor in tensors):
            return in_cpp(*args, **kwargs)
        small_args, small_kwargs = pytree.tree_map_only(torch.Tensor, of_size_one, (args, kwargs))
        dtype = in_cpp(*small_args, **small_kwargs).dtype
        shape = _broadcast_shapes(*(tensor.shape for tensor in tensors))
        if op._schema.is_mutable:
            _check_shape_of_result(args[0], shape)
            return args[0]
        expanded = [each if _is_shape(each.shape, shape) else each.expand(shape) for each in tensors]
        strides = utils.compute_elementwise_output_strides(*expanded)
        return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def _activate_added():
    """Run upstream's ``activate_meta`` on what it has not activated yet."""
    global global_decomposition_table
    whole, key = global_decomposition_table, torch._C.DispatchKey.Meta
    global_decomposition_table = {
        kind: {op: fn for op, fn in registry.items() if key not in op.py_kernels} for kind, registry in whole.items()
    }
    try:
        activate_meta()
    finally:
        global_decomposition_table = whole


for _kind, _decompositions in _decompositions_of_added.items():
    global_decomposition_table[_kind].update(_decompositions)
for _name in _added_operators.POINTWISE:
    _op = torch._library.utils.lookup_op(_name)
    if _op not in meta_table and (_in_cpp := _meta_in_cpp(_op)):
        _register_added_pointwise(_op, _in_cpp)
_activate_added()

# Fake tensors prefer the meta functions above to kernels for Meta, and decompositions if there is no meta function.
_replaced_meta = [
    torch._library.utils.lookup_op(name) for name, what in _added_operators.REPLACED.items() if "Meta" in what
]
for _op in _replaced_meta:
    _op.py_kernels.pop(torch._C.DispatchKey.Meta, None)
    _op._dispatch_cache.clear()
    meta_table[_op] = _op
if _replaced_meta:
    import sys

    from torch import _graft

    _graft.register_again()
    # `python -m torch._graft` would warn that it is there. It counts uses, so there must not be two.
    del sys.modules["torch._graft"], torch._graft
