// pytorch#196214: sum and prod over both dimensions of a CSR matrix without elements gave `values` of the shape (), for
// (0,): an invalid tensor, which to_dense() and to_sparse_coo() refuse.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_csr_prod_native.h>
#include <ATen/ops/_sparse_csr_sum_native.h>

namespace at::native {
namespace {

Tensor with_valid_values(const Tensor& csr) {
  if (csr.values().dim() > 0) {
    return csr;
  }
  const Tensor values = csr.values().new_empty({0});
  return at::_sparse_compressed_tensor_unsafe(
      csr.crow_indices(), csr.col_indices(), values, csr.sizes(), values.options().layout(kSparseCsr));
}

} // namespace

Tensor csr_sum(const Tensor& self, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  return with_valid_values(_sparse_csr_sum_cpu(self, dim, keepdim, dtype));
}

Tensor csr_prod(const Tensor& self, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  return with_valid_values(_sparse_csr_prod_cpu(self, dim, keepdim, dtype));
}

} // namespace at::native
