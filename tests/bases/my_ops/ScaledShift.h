#pragma once

#include <ATen/core/Tensor.h>

namespace at::native {

// Both devices' kernels ask it of their arguments.
TORCH_API void check_scaled_shift(const Tensor& self);

} // namespace at::native
