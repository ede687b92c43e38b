#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/Arguments.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/affine_native.h>
#include <ATen/ops/linear.h>
#endif

namespace at::native {

// It has no kernel and no derivative of its own: linear calls BLAS and oneDNN, and supports autograd, vmap and
// autocast. This adds checks that name the argument.
Tensor affine(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const auto sizes = input.sym_sizes();
  const auto weight_sizes = weight.sym_sizes();
  TORCH_CHECK(
      !sizes.empty(), "affine(): expected input to have at least one dimension, [..., in_features], but it has none");
  TORCH_CHECK(
      weight_sizes.size() == 2,
      "affine(): expected weight to be 2-D, [out_features, in_features], but got ",
      weight_sizes);
  TORCH_CHECK(
      sizes.back() == weight_sizes[1],
      "affine(): expected the last dimension of input to be weight's ",
      weight_sizes[1],
      " in_features, but got input ",
      sizes,
      " and weight ",
      weight_sizes);
  check_like("affine(): expected weight", weight, "input", input);
  if (bias && bias->defined()) {
    check_like("affine(): expected bias", *bias, "input", input);
    const auto bias_sizes = bias->sym_sizes();
    TORCH_CHECK(
        bias_sizes.size() == 1 && bias_sizes[0] == weight_sizes[0],
        "affine(): expected bias to be 1-D with weight's ",
        weight_sizes[0],
        " out_features, but got ",
        bias_sizes);
  }
  if (sizes.size() == 1) {
    // As a matrix of one row: for a vector, linear's forward derivative has the wrong shape under vmap.
    return at::linear(input.unsqueeze(0), weight, bias).squeeze(0);
  }
  return at::linear(input, weight, bias);
}

} // namespace at::native
