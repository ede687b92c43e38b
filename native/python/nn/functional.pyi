from torch import depthwise_conv2d as depthwise_conv2d, improved_triplet_loss as improved_triplet_loss

__all__ += ["depthwise_conv2d", "improved_triplet_loss"]

def affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = ...,
) -> Tensor: ...
def roi_pool(
    input: Tensor,
    boxes: Tensor | list[Tensor],
    output_size: _int | _size,
    spatial_scale: float = ...,
) -> Tensor: ...
