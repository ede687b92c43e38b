// pytorch#188900: a sparse dimension of size 1 was not broadcast over that of a dense tensor: all but the first slice
// of the product was empty.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sparse_broadcast_to.h>
#include <ATen/ops/mul_native.h>
#include <c10/util/accumulate.h>

namespace at::native {
namespace {

// Returns the sparse tensor with its sparse dimensions of size 1 as large as those of the product.
Tensor broadcast_sparse(const Tensor& sparse, const Tensor& dense) {
  const auto shape = infer_size(sparse.sizes(), dense.sizes());
  if (c10::multiply_integers(shape) == 0) {
    return sparse; // sparse_broadcast_to would divide by zero
  }
  const int64_t added = static_cast<int64_t>(shape.size()) - sparse.dim();
  auto sizes = sparse.sizes().vec();
  for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
    sizes[d] = shape[added + d];
  }
  return sparse.sizes() == IntArrayRef(sizes) ? sparse : at::_sparse_broadcast_to(sparse, sizes);
}

} // namespace

Tensor& mul_out_broadcast_sparse(const Tensor& self, const Tensor& other, Tensor& out) {
  if (self.is_sparse() == other.is_sparse()) {
    return mul_out_sparse_cpu(self, other, out);
  }
  return self.is_sparse() ? mul_out_sparse_cpu(broadcast_sparse(self, other), other, out)
                          : mul_out_sparse_cpu(self, broadcast_sparse(other, self), out);
}

} // namespace at::native
