from typing import Any

from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, PlacementList, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy, register_op_strategy
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard


def _images_on_several_ranks(op_schema: OpSchema, images: int, results: PlacementList) -> OpStrategy:
    """Return the strategies: the images of a batch sharded and the other tensors replicated, or all replicated.

    Args:
        op_schema: the schema of an operator whose first tensors are batches of images.
        images: the number of those tensors.
        results: the placements of the results if the images are sharded; None for a result that is not computed.
    """
    tensors = op_schema.args_strategy
    everywhere = [None if result is None else Replicate() for result in results]
    strategies: list[PlacementList] = [[*everywhere, *([Replicate()] * len(tensors))]]
    if tensors[0].ndim == 4:  # a single image has no batch dimension
        strategies.append([*results, *([Shard(0)] * images), *([Replicate()] * (len(tensors) - images))])
    mesh = tensors[0].strategies[0].output_spec.mesh
    return expand_to_full_mesh_op_strategy(mesh, op_schema, strategies, input_index=len(results))


# PyTorch 2.6 passes the mesh before the schema.
@register_op_strategy(aten.depthwise_conv2d.default, schema_info=RuntimeSchemaInfo(3))
def depthwise_conv2d_strategy(*mesh_and_schema: Any) -> OpStrategy:
    return _images_on_several_ranks(mesh_and_schema[-1], 1, [Shard(0)])


# Each rank computes the gradient of the weight for its own images: a partial sum.
@register_op_strategy(aten.depthwise_conv2d_backward.default, schema_info=RuntimeSchemaInfo(3))
def depthwise_conv2d_backward_strategy(*mesh_and_schema: Any) -> OpStrategy:
    op_schema: OpSchema = mesh_and_schema[-1]
    output_mask = op_schema.args_schema[-1]
    results = [Shard(0), Partial(), Partial()]
    return _images_on_several_ranks(
        op_schema, 2, [result if wanted else None for result, wanted in zip(results, output_mask, strict=True)]
    )
