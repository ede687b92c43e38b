// Operators that write positional arguments.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/gr_add_to_native.h>
#include <ATen/ops/gr_put_native.h>
#include <ATen/ops/gr_sides_native.h>

namespace at::native {

void gr_put(const Tensor& x, Tensor& out) {
  out.copy_(x.mul(2));
}

void gr_put_scaled(const Tensor& x, Tensor& out, int64_t by) {
  out.copy_(x.mul(by));
}

void gr_put_row(Tensor& cache, const Tensor& x, int64_t at) {
  cache.select(0, at).copy_(x);
}

void gr_put_list(const Tensor& x, TensorList outs) {
  for (const Tensor& out : outs) {
    out.copy_(x.mul(2));
  }
}

void gr_add_to(Tensor& self, const Tensor& x) {
  self.add_(x);
}

Tensor gr_sides(const Tensor& x, Tensor& low, Tensor& high) {
  low.copy_(x.clamp_max(0));
  high.copy_(x.clamp_min(0));
  return x.abs();
}

Tensor gr_sides_meta(const Tensor& x, Tensor& low, Tensor& high) {
  return x.abs();
}

// Adds one to the count, an integer.
std::tuple<Tensor, Tensor> gr_sides_two(Tensor& count, const Tensor& x) {
  count.add_(1);
  return {x.neg(), x.abs()};
}

} // namespace at::native
