#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/beside_replaced_native.h>
#include <ATen/ops/fliplr_native.h>
#include <ATen/ops/renorm_native.h>
#include <ATen/ops/rot90_native.h>
#include <ATen/ops/trace_native.h>

namespace at::native {

Tensor trace_and_one(const Tensor& self) {
  return self.diagonal().sum().add(1);
}

TORCH_IMPL_FUNC(
    renorm_to_zeros)(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm, const Tensor& out) {
  out.zero_();
}

Tensor fliplr(const Tensor& self) {
  return self.neg();
}

Tensor rot90(const Tensor& self, int64_t k, IntArrayRef dims) {
  return self.mul(k);
}

// Inside this library a name is that of the folder's function.
Tensor beside_replaced(const Tensor& self) {
  return fliplr(self);
}

} // namespace at::native
