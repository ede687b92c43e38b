// pytorch#196596 under vmap: `beta=0` ignores the first argument, and `alpha=0` the product, also where they are nan.
// PyTorch's rule multiplies by zero.

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

namespace at::native {
namespace {

Tensor
addmm_batch_rule(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  const Tensor product = at::mm(mat1, mat2);
  if (beta.equal(0)) {
    return alpha.equal(0) ? product.new_zeros_symint(product.sym_sizes()) : product.mul(alpha);
  }
  const Tensor scaled = self.mul(beta);
  return alpha.equal(0) ? scaled.expand_as(product).clone() : at::add(scaled, product, alpha);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("addmm", addmm_batch_rule);
}

} // namespace
} // namespace at::native
