#pragma once

#include <ATen/native/DispatchStub.h>

namespace at {
class TensorBase;
}

namespace at::native {

// output[k, n, i, j] = sum over a, b of input[k, n, i + a, j + b] * kernel[k, a, b]: no zeros are filled in, and
// nothing is conjugated. All of them contiguous and not empty. An input [1, N, H, W] is that of every k. Only for those
// n of k where chosen [k, n] is true, if it is defined.
using correlate2d_fn =
    void (*)(const TensorBase& output, const TensorBase& input, const TensorBase& kernel, const TensorBase& chosen);

// output[k, a, b] = sum over n, i, j of input[k, n, i + a, j + b] * grad[k, n, i, j]; chosen [k].
using correlate2d_kernel_grad_fn = correlate2d_fn;

DECLARE_DISPATCH(correlate2d_fn, correlate2d_stub)
DECLARE_DISPATCH(correlate2d_kernel_grad_fn, correlate2d_kernel_grad_stub)

} // namespace at::native
