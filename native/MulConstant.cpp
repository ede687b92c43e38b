#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/MulConstant.h>
#include <ATen/native/TensorIterator.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/mul_constant_native.h>
#include <ATen/ops/result_type.h>
#endif

namespace at::meta {

TORCH_META_FUNC(mul_constant)(const Tensor& self, const Scalar& constant) {
  // The constant takes part in type promotion but is not an operand, so it is not converted to a tensor. self is
  // converted only if the constant has a higher category.
  build(
      TensorIteratorConfig()
          .set_check_mem_overlap(true)
          .promote_inputs_to_common_dtype(true)
          .cast_common_dtype_to_outputs(true)
          .enforce_safe_casting_to_output(true)
          .add_output(maybe_get_output())
          .add_owned_const_input(self.to(at::result_type(self, constant))));
}

} // namespace at::meta

namespace at::native {

DEFINE_DISPATCH(mul_constant_stub);

TORCH_IMPL_FUNC(mul_constant_out)(const Tensor& self, const Scalar& constant, const Tensor& result) {
  mul_constant_stub(device_type(), *this, constant);
}

} // namespace at::native
