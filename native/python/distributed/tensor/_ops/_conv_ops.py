from functools import partial
from typing import Any

from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, PlacementList, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy, register_op_strategy
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard


def _is_divided(x: OpStrategy) -> bool:
    spec = x.strategies[0].output_spec
    return x.ndim > 0 and spec.shape[0] % spec.mesh.size() == 0


# For each operator: whether its arguments have a batch, and the placements of its results and of its tensors if that is
# sharded. A partial sum is that of a rank's own images or boxes.
_PARTS, _IMAGES, _WHOLE = Shard(0), Shard(1), Replicate()
_RULES = {
    aten.depthwise_conv2d: (lambda x, *_: x.ndim == 4, [_PARTS], [_PARTS, _WHOLE, _WHOLE]),
    aten.depthwise_conv2d_backward: (
        lambda g, *_: g.ndim == 4,
        [_PARTS, Partial(), Partial()],
        [_PARTS] * 2 + [_WHOLE],
    ),
    aten.improved_triplet_loss_with_distances: (lambda x, *_: x.ndim > 1, [_PARTS] * 2, [_PARTS] * 3),
    aten.improved_triplet_loss_backward: (lambda grad, *_: grad.ndim > 0, [_PARTS] * 3, [_PARTS] * 5),
    aten.roi_pool_with_indices: (lambda *_: True, [_PARTS] * 2, [_WHOLE, _PARTS]),
    aten.roi_pool_backward: (lambda *_: True, [Partial()], [_PARTS] * 3),
    aten._correlate2d: (lambda *_: True, [_IMAGES], [_IMAGES, _WHOLE]),
    aten._correlate2d_kernel_grad: (lambda *_: True, [Partial()], [_IMAGES] * 2),
    aten._fft_rfft2_abs: (lambda x: x.ndim > 2, [_PARTS] * 2, [_PARTS]),
    aten._fft_rfft2_abs_backward: (lambda grad, *_: grad.ndim > 2, [_PARTS], [_PARTS] * 2),
    aten.gdh: (_is_divided, [_PARTS], [_PARTS]),
}


# PyTorch 2.6 passes the mesh before the schema.
def _shard_batch(rule: Any, *mesh_and_schema: Any) -> OpStrategy:
    """Return the strategies: all tensors replicated, or the batch sharded."""
    op_schema: OpSchema = mesh_and_schema[-1]
    has_batch, results, tensors = rule
    tensors, mask = tensors[: len(op_schema.args_strategy)], op_schema.args_schema[-1]
    if str(op_schema.op._schema.arguments[-1].name) == "output_mask":
        results = [result if wanted else None for result, wanted in zip(results, mask, strict=True)]
    everywhere: PlacementList = [None if result is None else _WHOLE for result in results]
    strategies = [[*everywhere, *([_WHOLE] * len(tensors))]]
    if has_batch(*op_schema.args_schema):
        strategies.append([*results, *tensors])
    mesh = op_schema.args_strategy[0].strategies[0].output_spec.mesh
    return expand_to_full_mesh_op_strategy(mesh, op_schema, strategies, input_index=len(results))


for _op, _rule in _RULES.items():
    register_op_strategy(_op.default, schema_info=RuntimeSchemaInfo(len(_rule[2])))(partial(_shard_batch, _rule))
