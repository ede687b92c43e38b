# What differs from PyTorch's in the values and gradients of OpInfos.
DIFFERS = {
    "sinc": "near 0 the gradient is a series, which has all digits",
    "logaddexp": "the gradient is computed from exp(-|d|), which does not overflow",
    "logaddexp2": "the gradient is computed from exp2(-|d|), which does not overflow",
    "nn.functional.gelu": "the last bits in float32: oneDNN computes another polynomial",
    "igamma": "the last bits: the compiler fuses other multiplications with additions",
}
