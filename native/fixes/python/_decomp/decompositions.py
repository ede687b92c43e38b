# pytorch#192668: on CPUs the result of batch_norm for an input that is not contiguous is, but that of the decomposition
# has the strides of the input. torch.compile and torch.export take shapes and strides from it.
_batch_norm_of_pytorch = native_batch_norm_helper


def native_batch_norm_helper(input, *args, **kwargs):
    output, *others = _batch_norm_of_pytorch(input, *args, **kwargs)
    if input.device.type == "cpu":
        format_ = torch.contiguous_format if input.is_contiguous() else utils.suggest_memory_format(input)
        output = output.contiguous(memory_format=format_)
    return output, *others
