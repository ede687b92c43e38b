// Operators that write positional arguments.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/gr_add_to_native.h>
#include <ATen/ops/gr_fill_some_native.h>
#include <ATen/ops/gr_keep_composed_native.h>
#include <ATen/ops/gr_keep_native.h>
#include <ATen/ops/gr_put_native.h>
#include <ATen/ops/gr_sides_native.h>
#include <ATen/ops/gr_rotate_native.h>

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

void gr_rotate(const Tensor& positions, Tensor& query, const std::optional<Tensor>& key, int64_t head_size) {
  query.add_(positions);
  if (key.has_value()) {
    key->sub_(positions, head_size);
  }
}

Tensor gr_keep(const Tensor& x, const std::optional<Tensor>& kept, int64_t by) {
  if (kept.has_value()) {
    kept->copy_(x.mul(by));
  }
  return x.neg();
}

Tensor gr_keep_meta(const Tensor& x, const std::optional<Tensor>& kept, int64_t by) {
  return x.neg();
}

void gr_fill_some(const std::optional<Tensor>& first, const std::optional<Tensor>& second, const Scalar& value) {
  for (const auto& each : {first, second}) {
    if (each.has_value()) {
      each->fill_(value);
    }
  }
}

void gr_keep_composed(const Tensor& x, const std::optional<Tensor>& kept) {
  if (kept.has_value()) {
    kept->copy_(x.mul(2));
  }
}

} // namespace at::native
