// Operators with several results, not all of which are tensors.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gr_results_composed_native.h>
#include <ATen/ops/gr_results_native.h>
#include <ATen/ops/gr_seven_native.h>

namespace at::native {

std::tuple<Tensor, double, int64_t, bool> gr_results(const Tensor& x) {
  return {x + 1, 0.5, x.numel(), true};
}

std::tuple<std::vector<Tensor>, std::vector<Tensor>> gr_results_composed(const Tensor& x) {
  return {{x, x + 1}, {x + 2}};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> gr_seven(const Tensor& x) {
  return {x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6};
}

} // namespace at::native
