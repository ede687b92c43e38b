#pragma once

#include <ATen/native/DispatchStub.h>

namespace at {
class TensorBase;
}

namespace at::native {

// result = grad * spectrum / magnitude, and 0 where the magnitude is; halved in the columns that stand for two of the
// transform of a real signal with last_dim_size columns. All of them contiguous.
using spectrum_grad_fn = void (*)(
    const TensorBase& result,
    const TensorBase& grad,
    const TensorBase& spectrum,
    const TensorBase& magnitude,
    int64_t last_dim_size);

DECLARE_DISPATCH(spectrum_grad_fn, spectrum_grad_stub)

} // namespace at::native
