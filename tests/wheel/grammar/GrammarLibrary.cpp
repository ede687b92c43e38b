// What sources of extensions have: a namespace of their own, `using namespace`, and OpenMP.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>

using namespace at;
using namespace torch;

namespace gr_lib {

namespace {

void add_largest(const float* rows, float* result, int64_t count, int64_t width) {
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) {
    result[i] += *std::max_element(rows + i * width, rows + (i + 1) * width);
  }
}

void subtract_smallest(const float* rows, float* result, int64_t count, int64_t width) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      result[i] -= *std::min_element(rows + i * width, rows + (i + 1) * width);
    }
  });
}

} // namespace

Tensor gr_row_range(const Tensor& x) {
  TORCH_CHECK(
      x.dim() == 2 && x.size(1) > 0 && x.scalar_type() == kFloat, "gr_row_range(): expected a matrix of float32");
  const Tensor rows = x.contiguous();
  Tensor result = zeros({x.size(0)}, x.options());
  add_largest(rows.const_data_ptr<float>(), result.mutable_data_ptr<float>(), x.size(0), x.size(1));
  subtract_smallest(rows.const_data_ptr<float>(), result.mutable_data_ptr<float>(), x.size(0), x.size(1));
  return result;
}

// By another function of this namespace, which has the name of an operator, too.
Tensor gr_column_range(const Tensor& x) {
  return gr_lib::gr_row_range(x.t());
}

// Whether grad mode is on, and whether autograd records a call.
Tensor modes(const Tensor& x) {
  return at::tensor({GradMode::is_enabled() ? 1.0 : 0.0, x.neg().requires_grad() ? 1.0 : 0.0}, x.options());
}

} // namespace gr_lib

namespace at::native {

Tensor gr_row_range(const Tensor& x) {
  return gr_lib::gr_row_range(x);
}

Tensor gr_column_range(const Tensor& x) {
  return gr_lib::gr_column_range(x);
}

Tensor gr_modes(const Tensor& x) {
  return gr_lib::modes(x);
}

Tensor gr_modes_composed(const Tensor& x) {
  return gr_lib::modes(x);
}

Tensor gr_modes_without_grad(const Tensor& x) {
  at::NoGradGuard no_grad;
  return gr_lib::modes(x);
}

} // namespace at::native
