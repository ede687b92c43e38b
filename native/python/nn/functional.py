affine = torch.affine
depthwise_conv2d = torch.depthwise_conv2d
improved_triplet_loss = torch.improved_triplet_loss


def _boxes_with_images(boxes: list[Tensor]) -> Tensor:
    images: list[Tensor] = []
    for i, box in enumerate(boxes):
        if box.dim() != 2 or box.size(1) != 4:
            raise ValueError("roi_pool(): expected a list of boxes to hold tensors [K, 4], (x1, y1, x2, y2)")
        # Half types cannot represent every index.
        images.append(torch.full([box.size(0), 1], i, dtype=torch.float, device=box.device))
    return torch.cat([torch.cat(images), torch.cat(boxes)], 1)


def roi_pool(
    input: Tensor, boxes: Tensor | list[Tensor], output_size: BroadcastingList2[int], spatial_scale: float = 1.0
) -> Tensor:
    r"""Pool the largest values in regions of interest.

    See :class:`~torch.nn.RoIPool` for details.
    """
    if has_torch_function_variadic(input, boxes):
        return handle_torch_function(roi_pool, (input, boxes), input, boxes, output_size, spatial_scale=spatial_scale)
    height, width = _pair(output_size)
    rois = boxes if isinstance(boxes, Tensor) else _boxes_with_images(boxes)
    return torch.roi_pool(input, rois, spatial_scale, height, width)
