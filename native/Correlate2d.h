#pragma once

#include <ATen/native/DispatchStub.h>

namespace at {
class TensorBase;
}

namespace at::native {

// output[k, n, i, j] = sum over a, b of input[k, n, i + a, j + b] * kernel[k, a, b]: no zeros are filled in, and
// nothing is conjugated. All tensors are contiguous and not empty. All k share an input [1, N, H, W].
// If chosen [k, n] is defined, only the results where it is true are computed.
using correlate2d_fn =
    void (*)(const TensorBase& output, const TensorBase& input, const TensorBase& kernel, const TensorBase& chosen);

// output[k, a, b] = sum over n, i, j of input[k, n, i + a, j + b] * grad[k, n, i, j]; chosen [k].
using correlate2d_kernel_grad_fn = correlate2d_fn;

DECLARE_DISPATCH(correlate2d_fn, correlate2d_stub)
DECLARE_DISPATCH(correlate2d_kernel_grad_fn, correlate2d_kernel_grad_stub)

} // namespace at::native
