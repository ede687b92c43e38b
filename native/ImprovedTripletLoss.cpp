#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/FloatingTypes.h>
#include <ATen/native/ImprovedTripletLoss.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_improved_triplet_loss_backward_jvp_native.h>
#include <ATen/ops/_improved_triplet_loss_jvp_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/improved_triplet_loss_backward.h>
#include <ATen/ops/improved_triplet_loss_backward_native.h>
#include <ATen/ops/improved_triplet_loss_double_backward_native.h>
#include <ATen/ops/improved_triplet_loss_native.h>
#include <ATen/ops/improved_triplet_loss_with_distances.h>
#include <ATen/ops/improved_triplet_loss_with_distances_native.h>
#include <ATen/ops/zeros_like.h>
#endif

namespace at::native {

DEFINE_DISPATCH(improved_triplet_loss_stub);
DEFINE_DISPATCH(improved_triplet_loss_backward_stub);

namespace {

void check_like_anchor(const Tensor& anchor, const Tensor& other, const char* name) {
  TORCH_CHECK(
      other.sym_sizes() == anchor.sym_sizes(),
      "improved_triplet_loss(): expected ",
      name,
      " to have anchor's shape ",
      anchor.sym_sizes(),
      ", but got ",
      other.sym_sizes());
  TORCH_CHECK(
      other.scalar_type() == anchor.scalar_type(),
      "improved_triplet_loss(): expected ",
      name,
      " to have anchor's dtype ",
      anchor.scalar_type(),
      ", but got ",
      other.scalar_type());
  TORCH_CHECK(
      other.device() == anchor.device(),
      "improved_triplet_loss(): expected ",
      name,
      " to be on anchor's device ",
      anchor.device(),
      ", but it is on ",
      other.device());
}

void check_triplets(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  TORCH_CHECK(anchor.dim() >= 1, "improved_triplet_loss(): expected anchor to be [..., D], but got []");
  TORCH_CHECK(
      isArithmeticFloatingType(anchor.scalar_type()),
      "improved_triplet_loss(): expected anchor to be double, float, half or bfloat16, but got ",
      anchor.scalar_type());
  check_like_anchor(anchor, positive, "positive");
  check_like_anchor(anchor, negative, "negative");
}

} // namespace

void check_triplet_inputs(const Tensor& anchor, const Tensor& positive, const Tensor& negative, int64_t reduction) {
  check_triplets(anchor, positive, negative);
  TORCH_CHECK(
      anchor.dim() <= 2, "improved_triplet_loss(): expected anchor to be [N, D] or [D], but got ", anchor.sym_sizes());
  TORCH_CHECK(
      reduction >= Reduction::None && reduction < Reduction::END,
      "improved_triplet_loss(): expected reduction to be 0 (none), 1 (mean) or 2 (sum), but got ",
      reduction);
}

namespace {

// The shape of the losses before they are reduced: anchor's without the last dimension.
SymIntArrayRef row_sizes(const Tensor& anchor) {
  return anchor.sym_sizes().slice(0, anchor.dim() - 1);
}

Tensor reduce(const Tensor& losses, int64_t reduction) {
  return reduction == Reduction::Mean ? losses.mean() : reduction == Reduction::Sum ? losses.sum() : losses;
}

int64_t reduction_from_name(std::string_view name) {
  if (name == "none") {
    return Reduction::None;
  }
  TORCH_CHECK_VALUE(
      name == "mean" || name == "sum",
      "improved_triplet_loss(): expected reduction to be 'none', 'mean' or 'sum', but got '",
      name,
      "'");
  return name == "mean" ? Reduction::Mean : Reduction::Sum;
}

Tensor as_rows(const Tensor& x) {
  return x.dim() == 2 ? x : x.unsqueeze(0);
}

TripletInputs as_rows(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  return {as_rows(anchor), as_rows(positive), as_rows(negative)};
}

// In the type of the computation.
TensorOptions opmath_options(const Tensor& anchor) {
  return anchor.options().dtype(toOpMathType(anchor.scalar_type()));
}

// [N, 2], or [2] for inputs [D].
SymDimVector distances_sizes(const Tensor& anchor) {
  SymDimVector sizes(row_sizes(anchor));
  sizes.emplace_back(2);
  return sizes;
}

void check_distances(const char* op, const Tensor& distances, const Tensor& anchor) {
  const auto dtype = toOpMathType(anchor.scalar_type());
  TORCH_CHECK(
      distances.sym_sizes() == SymIntArrayRef(distances_sizes(anchor)) && distances.scalar_type() == dtype &&
          distances.device() == anchor.device(),
      op,
      "(): expected distances to be ",
      distances_sizes(anchor),
      " of dtype ",
      dtype,
      " on device ",
      anchor.device(),
      ", but got ",
      distances.sym_sizes(),
      " of dtype ",
      distances.scalar_type(),
      " on device ",
      distances.device());
}

} // namespace

Tensor improved_triplet_loss(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    std::string_view reduction) {
  check_triplets(anchor, positive, negative);
  const auto merge = [](const Tensor& x) { return x.dim() > 2 ? x.flatten(0, -2) : x; };
  const Tensor loss = std::get<0>(at::improved_triplet_loss_with_distances(
      merge(anchor), merge(positive), merge(negative), tau1, tau2, beta, reduction_from_name(reduction)));
  return loss.dim() > 0 ? loss.view_symint(row_sizes(anchor)) : loss;
}

std::tuple<Tensor, Tensor> improved_triplet_loss_with_distances_meta(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_triplet_inputs(anchor, positive, negative, reduction);
  const auto sizes = reduction == Reduction::None ? row_sizes(anchor) : SymIntArrayRef();
  return {at::empty_symint(sizes, anchor.options()), at::empty_symint(distances_sizes(anchor), opmath_options(anchor))};
}

std::tuple<Tensor, Tensor> improved_triplet_loss_with_distances(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_triplet_inputs(anchor, positive, negative, reduction);
  const Tensor losses = at::empty_symint(row_sizes(anchor), opmath_options(anchor));
  const Tensor distances = at::empty_symint(distances_sizes(anchor), opmath_options(anchor));
  improved_triplet_loss_stub(
      anchor.device().type(),
      losses,
      distances,
      as_rows(anchor, positive, negative),
      TripletParameters{tau1, tau2, beta});
  return {reduce(losses, reduction).to(anchor.scalar_type()), distances};
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward_meta(
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction,
    std::array<bool, 3> output_mask) {
  check_triplet_inputs(anchor, positive, negative, reduction);
  check_distances("improved_triplet_loss_backward", distances, anchor);
  const auto result_sizes = reduction == Reduction::None ? row_sizes(anchor) : SymIntArrayRef();
  TORCH_CHECK(
      grad_output.sym_sizes() == result_sizes,
      "improved_triplet_loss_backward(): expected grad_output to have the loss's shape ",
      result_sizes,
      ", but got ",
      grad_output.sym_sizes());
  const auto grad = [&](int64_t i) {
    return output_mask[i] ? at::empty_like(anchor, MemoryFormat::Contiguous) : Tensor();
  };
  return {grad(0), grad(1), grad(2)};
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward(
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction,
    std::array<bool, 3> output_mask) {
  auto grads = improved_triplet_loss_backward_meta(
      grad_output, anchor, positive, negative, distances, tau1, tau2, beta, reduction, output_mask);
  auto& [grad_anchor, grad_positive, grad_negative] = grads;
  const TripletInputs inputs = as_rows(anchor, positive, negative);
  const int64_t rows = inputs[0].size(0);
  improved_triplet_loss_backward_stub(
      anchor.device().type(),
      TripletInputs{grad_anchor, grad_positive, grad_negative},
      grad_output.to(toOpMathType(anchor.scalar_type())).expand({rows}),
      reduction == Reduction::Mean ? rows : 1,
      distances.contiguous(),
      inputs,
      TripletParameters{tau1, tau2, beta});
  return grads;
}

Tensor _improved_triplet_loss_jvp(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& anchor_tangent,
    const Tensor& positive_tangent,
    const Tensor& negative_tangent,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_triplet_inputs(anchor, positive, negative, reduction);
  check_distances("_improved_triplet_loss_jvp", distances, anchor);
  const auto difference = [&](const Tensor& x, const Tensor& y) {
    return x.to(distances.scalar_type()) - y.to(distances.scalar_type());
  };
  // TripletFormula::slopes, in tensor operations.
  const Tensor d_ap = distances.select(-1, 0), d_an = distances.select(-1, 1);
  const Tensor by_an = (d_ap - d_an).ge(tau1).to(distances.scalar_type()).neg();
  const Tensor by_ap = beta * d_ap.ge(tau2).to(distances.scalar_type()) - by_an;
  const Tensor d_ap_tangent = 2 * (difference(anchor, positive) * difference(anchor_tangent, positive_tangent)).sum(-1);
  const Tensor d_an_tangent = 2 * (difference(anchor, negative) * difference(anchor_tangent, negative_tangent)).sum(-1);
  return reduce(by_ap * d_ap_tangent + by_an * d_an_tangent, reduction).to(anchor.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> improved_triplet_loss_double_backward(
    const std::optional<Tensor>& grad_grad_anchor,
    const std::optional<Tensor>& grad_grad_positive,
    const std::optional<Tensor>& grad_grad_negative,
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_triplet_inputs(anchor, positive, negative, reduction);
  check_distances("improved_triplet_loss_double_backward", distances, anchor);
  const auto or_zeros = [&](const std::optional<Tensor>& grad) {
    return grad && grad->defined() ? *grad : at::zeros_like(anchor);
  };
  const Tensor v_anchor = or_zeros(grad_grad_anchor);
  const Tensor v_positive = or_zeros(grad_grad_positive);
  const Tensor v_negative = or_zeros(grad_grad_negative);
  // The gradients are grad_output times H(anchor, positive, negative), with a symmetric matrix H. So the derivative by
  // grad_output is that of the loss in the direction v, and those by the inputs are the gradients with v for the
  // inputs.
  const Tensor by_grad_output = _improved_triplet_loss_jvp(
      anchor, positive, negative, v_anchor, v_positive, v_negative, distances, tau1, tau2, beta, reduction);
  return std::tuple_cat(
      std::make_tuple(by_grad_output),
      at::improved_triplet_loss_backward(
          grad_output, v_anchor, v_positive, v_negative, distances, tau1, tau2, beta, reduction, {true, true, true}));
}

// The backward is linear in grad_output and, with constant distances, in the inputs together.
std::tuple<Tensor, Tensor, Tensor> _improved_triplet_loss_backward_jvp(
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& grad_output_tangent,
    const Tensor& anchor_tangent,
    const Tensor& positive_tangent,
    const Tensor& negative_tangent,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  const auto backward = [&](const Tensor& grad, const Tensor& a, const Tensor& p, const Tensor& n) {
    return at::improved_triplet_loss_backward(
        grad, a, p, n, distances, tau1, tau2, beta, reduction, {true, true, true});
  };
  const auto by_grad = backward(grad_output_tangent, anchor, positive, negative);
  const auto by_inputs = backward(grad_output, anchor_tangent, positive_tangent, negative_tangent);
  return {
      std::get<0>(by_grad) + std::get<0>(by_inputs),
      std::get<1>(by_grad) + std::get<1>(by_inputs),
      std::get<2>(by_grad) + std::get<2>(by_inputs)};
}

} // namespace at::native
