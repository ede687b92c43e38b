#pragma once

#include <ATen/native/DispatchStub.h>

namespace at {
class TensorBase;
}

namespace at::native {

// output and indices [K, C, pooled_height, pooled_width] contiguous, indices int; boxes [K, 5] contiguous, in the type
// of the computation, float for half types.
using roi_pool_fn = void (*)(
    const TensorBase& output,
    const TensorBase& indices,
    const TensorBase& input,
    const TensorBase& boxes,
    double spatial_scale);

// Adds grad_output at the indices to grad_input. All are contiguous, both gradients in the type of the computation.
using roi_pool_backward_fn = void (*)(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& boxes,
    const TensorBase& indices);

DECLARE_DISPATCH(roi_pool_fn, roi_pool_stub)
DECLARE_DISPATCH(roi_pool_backward_fn, roi_pool_backward_stub)

} // namespace at::native
