// pytorch#185770, #187293: oneDNN's gelu of infinities is nan, too, so cpu/ActivationKernels.cpp computes all.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>
#include <ATen/ops/gelu_native.h>

namespace at::native {

TORCH_IMPL_FUNC(gelu_of_all)(const Tensor& self, std::string_view approximate, const Tensor& out) {
  GeluKernel(kCPU, *this, get_gelutype_enum(approximate));
}

} // namespace at::native
