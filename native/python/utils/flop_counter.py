@register_flop_formula([aten.depthwise_conv2d, aten._correlate2d])
def _correlation_flop(x_shape, kernel_shape, *args, out_shape=None, **kwargs) -> int:
    """Count flops where each element of the output is a sum of products with one kernel, whatever the method."""
    return 2 * prod(out_shape) * prod(kernel_shape[-2:])


@register_flop_formula(aten.depthwise_conv2d_backward)
def _depthwise_conv2d_backward_flop(
    grad_shape, x_shape, weight_shape, stride, padding, dilation, output_mask, **kwargs
) -> int:
    """Count as many flops for each of two gradients; the bias is left out, as for convolutions."""
    return 2 * prod(grad_shape) * prod(weight_shape[-2:]) * sum(output_mask[:2])


@register_flop_formula(aten._correlate2d_kernel_grad)
def _correlate2d_kernel_grad_flop(grad_shape, x_shape, offset, kernel_size, *args, **kwargs) -> int:
    """Count as many flops as in the forward."""
    return 2 * prod(grad_shape) * prod(kernel_size[-2:])
