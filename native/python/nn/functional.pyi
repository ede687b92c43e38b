from torch import depthwise_conv2d as depthwise_conv2d

__all__ += ["depthwise_conv2d"]

def affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = ...,
) -> Tensor: ...
def improved_triplet_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    tau1: float = ...,
    tau2: float = ...,
    beta: float = ...,
    reduction: str = ...,
) -> Tensor: ...
def roi_pool(
    input: Tensor,
    boxes: Tensor | list[Tensor],
    output_size: _int | _size,
    spatial_scale: float = ...,
) -> Tensor: ...
