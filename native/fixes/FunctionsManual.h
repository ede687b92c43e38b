#pragma once

#include <torch/csrc/autograd/FunctionsManual.h>

// Functions of this folder's formulas, which PyTorch has no function for.
namespace torch::autograd::generated::details {

/// The derivative of logaddexp(x, y) with respect to x, 1 / (1 + exp(-d)), for d = x - y; complex, too.
Tensor logaddexp_weight(const Tensor& d);

/// The derivative of logaddexp2(x, y) with respect to x, 1 / (1 + 2^-d), for d = x - y.
Tensor logaddexp2_weight(const Tensor& d);

/// The derivative of the Bessel function J1.
Tensor bessel_j1_derivative(const Tensor& x);

/// The derivative of the modified Bessel function I1.
Tensor modified_bessel_i1_derivative(const Tensor& x);

} // namespace torch::autograd::generated::details
