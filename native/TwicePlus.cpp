#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/TwicePlus.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/twice_plus_native.h>
#endif

namespace at::meta {

TORCH_META_FUNC(twice_plus)(const Tensor& self, const Tensor& other) {
  build_borrowing_binary_op(maybe_get_output(), self, other);
  TORCH_CHECK(
      common_dtype() != kBool,
      "twice_plus(): expected self or other to be a number type, but both are bool. "
      "Convert one of them, for example with .to(torch.uint8)");
}

} // namespace at::meta

namespace at::native {

DEFINE_DISPATCH(twice_plus_stub);

TORCH_IMPL_FUNC(twice_plus_out)(const Tensor& self, const Tensor& other, const Tensor& result) {
  twice_plus_stub(device_type(), *this);
}

} // namespace at::native
