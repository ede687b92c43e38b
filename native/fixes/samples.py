# Results that differ from PyTorch's, in what OpInfos compute: values and gradients of the first order.
DIFFERS = {
    "sinc": "near 0 the gradient is a series, which has all digits",
    "logaddexp": "the gradient is computed from exp(-|d|), which does not overflow",
    "logaddexp2": "the gradient is computed from exp2(-|d|), which does not overflow",
}
