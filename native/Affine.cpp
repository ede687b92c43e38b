#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/affine_native.h>
#include <ATen/ops/linear.h>
#endif

namespace at::native {
namespace {

// Autocast has cast them before.
void check_dtype(const char* name, const Tensor& tensor, const Tensor& input) {
  TORCH_CHECK(
      tensor.scalar_type() == input.scalar_type(),
      "affine(): expected ",
      name,
      " to have the dtype of input, ",
      input.scalar_type(),
      ", but got ",
      tensor.scalar_type());
}

} // namespace

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
  check_dtype("weight", weight, input);
  if (bias && bias->defined()) {
    check_dtype("bias", *bias, input);
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
