// Calls a function that libtorch_cpu does not export.
#include <ATen/core/Tensor.h>
#include <ATen/ops/gr_backend_native.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/native/nested/NestedTensorTransformerFunctions.h>
#include <ATen/ops/gr_nested_sum_native.h>

namespace at::native {

Tensor gr_backend_nested(const Tensor& self) {
  return at::scalar_tensor(6, kLong);
}

Tensor gr_nested_sum(const Tensor& self, const Tensor& other) {
  return NestedTensor_add_NestedTensor_in_place(self.clone(), other);
}

} // namespace at::native
