#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorIterator.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/graft_smallest_native.h>
#endif

namespace at::meta {

TORCH_META_FUNC(graft_smallest)(const Tensor& self) {
  build_borrowing_unary_op(maybe_get_output(), self);
}

} // namespace at::meta

namespace at::native {

TORCH_IMPL_FUNC(graft_smallest_out)(const Tensor& self, const Tensor& out) {
  out.copy_(self);
}

} // namespace at::native
