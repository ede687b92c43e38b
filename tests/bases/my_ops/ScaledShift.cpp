#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/native/ScaledShift.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scaled_shift_native.h>

namespace at::native {

void check_scaled_shift(const Tensor& self) {
  TORCH_CHECK(self.is_floating_point(), "scaled_shift(): expected a floating point tensor, got ", self.dtype());
}

Tensor scaled_shift_cpu(const Tensor& self, const Scalar& scale, const Scalar& shift) {
  check_scaled_shift(self);
  return self.mul(scale).add(shift);
}

} // namespace at::native
