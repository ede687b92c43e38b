#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/GrammarStructured.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/TensorIterator.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/gr_axpy_native.h>
#include <ATen/ops/gr_extent_native.h>
#include <ATen/ops/gr_mix_native.h>
#include <ATen/ops/gr_negate_native.h>
#include <ATen/ops/gr_row_sum_native.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/sum.h>
#endif

namespace at::meta {

TORCH_META_FUNC(gr_mix)(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  build_borrowing_binary_op(maybe_get_output(), self, other);
  TORCH_CHECK(common_dtype() != kBool, "gr_mix(): bool is not a number");
}

TORCH_PRECOMPUTE_META_FUNC(gr_row_sum)(const Tensor& self, int64_t dim, bool keepdim) {
  TORCH_CHECK(self.dim() > 0, "gr_row_sum(): expected at least one dimension");
  const int64_t wrapped = maybe_wrap_dim(dim, self.dim());
  auto sizes = self.sizes().vec();
  const int64_t length = sizes[wrapped];
  if (keepdim) {
    sizes[wrapped] = 1;
  } else {
    sizes.erase(sizes.begin() + wrapped);
  }
  set_output_raw_strided(0, sizes, {}, self.options());
  return TORCH_PRECOMPUTE_STRUCT(gr_row_sum)().set_dim(wrapped).set_length(length);
}

TORCH_META_FUNC(gr_extent)(const Tensor& self, int64_t dim) {
  auto sizes = self.sizes().vec();
  sizes.erase(sizes.begin() + maybe_wrap_dim(dim, self.dim()));
  set_output_contiguous(0, sizes, self.options());
  set_output_contiguous(1, sizes, self.options());
}

TORCH_META_FUNC(gr_negate)(const Tensor& self) {
  build_borrowing_unary_op(maybe_get_output(), self);
}

TORCH_META_FUNC(gr_axpy)(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  build_borrowing_binary_op(maybe_get_output(), self, other);
}

} // namespace at::meta

namespace at::native {

DEFINE_DISPATCH(gr_mix_stub);

TORCH_IMPL_FUNC(gr_mix_out)(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& result) {
  gr_mix_stub(device_type(), *this, alpha);
}

TORCH_IMPL_FUNC(gr_row_sum_out)(const Tensor& self, int64_t dim, int64_t length, bool keepdim, const Tensor& result) {
  TORCH_INTERNAL_ASSERT(self.size(dim) == length);
  at::sum_out(const_cast<Tensor&>(result), self, dim, keepdim, result.scalar_type());
}

TORCH_IMPL_FUNC(gr_extent_out)(const Tensor& self, int64_t dim, const Tensor& low, const Tensor& high) {
  at::amin_out(const_cast<Tensor&>(low), self, dim);
  at::amax_out(const_cast<Tensor&>(high), self, dim);
}

TORCH_IMPL_FUNC(gr_negate_out)(const Tensor& self, const Tensor& result) {
  at::neg_out(const_cast<Tensor&>(result), self);
}

} // namespace at::native
