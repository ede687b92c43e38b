@register_meta(aten.depthwise_conv2d.default)
def meta_depthwise_conv2d(input, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    torch._check(
        input.dim() in (3, 4),
        lambda: f"depthwise_conv2d(): expected input to be 4-D [N, C, H, W] or 3-D [C, H, W], got {list(input.shape)}",
    )
    torch._check(
        weight.dim() == 4 and weight.shape[1] == 1 and weight.numel() > 0,
        lambda: (
            "depthwise_conv2d(): expected weight to be 4-D [C * multiplier, 1, kH, kW] and not empty, "
            f"got {list(weight.shape)}"
        ),
    )
    torch._check(
        input.shape[-3] > 0 and weight.shape[0] % input.shape[-3] == 0,
        lambda: (
            f"depthwise_conv2d(): expected the first size of weight to be a multiple of input's {input.shape[-3]} "
            f"channels, got {list(weight.shape)}"
        ),
    )
    torch._check(
        input.dtype in (torch.double, torch.float, torch.half, torch.bfloat16),
        lambda: f"depthwise_conv2d(): expected input to be double, float, half or bfloat16, got {input.dtype}",
    )
    torch._check(
        bias is None or (bias.dim() == 1 and bias.shape[0] == weight.shape[0]),
        lambda: f"depthwise_conv2d(): expected bias to be 1-D with {weight.shape[0]} elements, got {list(bias.shape)}",
    )
    for name, tensor in (("weight", weight), ("bias", bias)):
        torch._check(
            tensor is None or tensor.dtype == input.dtype,
            lambda: (
                f"depthwise_conv2d(): expected {name} to have the dtype of input, {input.dtype}, got {tensor.dtype}"
            ),
        )
    sizes = []
    for axis, name in enumerate(("height", "width")):
        # A parameter of one number holds for both axes.
        s, p, d = (pair[axis if len(pair) > 1 else 0] for pair in (stride, padding, dilation))
        for what, number, least in (("stride", s, 1), ("padding", p, 0), ("dilation", d, 1)):
            torch._check(
                number >= least,
                lambda what=what, number=number, least=least: (
                    f"depthwise_conv2d(): expected {what} to be at least {least}, got {number}"
                ),
            )
        padded = input.shape[axis - 2] + 2 * p
        extent = d * (weight.shape[axis + 2] - 1) + 1
        # Numbers of Python are of any size. Those that stand for symbols are not asked: that would be a guard.
        known = [number for number in (padded, extent) if isinstance(number, int)]
        torch._check(
            all(number <= torch.iinfo(torch.int64).max for number in known),
            lambda p=p, d=d, name=name: (
                "depthwise_conv2d(): expected padding and dilation to give sizes of 64 bits, "
                f"got padding {p} and dilation {d} for the {name}"
            ),
        )
        torch._check(
            padded >= extent,
            lambda: (
                f"depthwise_conv2d(): expected weight to be no larger than the padded input, got a {name} of {extent} "
                f"(dilation included) for an input of {padded} (padding included)"
            ),
        )
        sizes.append((padded - extent) // s + 1)
    result = input.new_empty([*input.shape[:-3], weight.shape[0], *sizes])
    return result if input.dim() == 3 else result.to(memory_format=utils.suggest_memory_format(input))


@register_meta(aten.depthwise_conv2d_backward.default)
def meta_depthwise_conv2d_backward(grad_output, input, weight, stride, padding, dilation, output_mask):
    grad_input = input.new_empty(input.shape)
    if input.dim() == 4:
        grad_input = grad_input.to(memory_format=utils.suggest_memory_format(input))
    return (
        grad_input if output_mask[0] else None,
        weight.new_empty(weight.shape) if output_mask[1] else None,
        weight.new_empty(weight.shape[:1]) if output_mask[2] else None,
    )


@register_meta(aten.gdh.default)
def meta_gdh(self):
    return self.new_empty((self.numel(),))
