#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/gr_backend_native.h>
#include <ATen/ops/gr_cuda_only_native.h>
#include <ATen/ops/gr_mix_native.h>

namespace at::native {

Tensor gr_backend_cuda(const Tensor& self) {
  return self.new_full({}, 10);
}

Tensor gr_backend_sparse_cuda(const Tensor& self) {
  return self.new_full({}, 11, self.options().layout(kStrided));
}

Tensor gr_cuda_only(const Tensor& self) {
  return self.clone();
}

TORCH_IMPL_FUNC(gr_mix_out_cuda)(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& result) {
  at::add_out(const_cast<Tensor&>(result), self, other, alpha);
}

} // namespace at::native
