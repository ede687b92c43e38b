#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/ImprovedTripletLoss.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_improved_triplet_loss_jvp_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/improved_triplet_loss_backward_native.h>
#include <ATen/ops/improved_triplet_loss_double_backward_native.h>
#include <ATen/ops/improved_triplet_loss_native.h>
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

void check_inputs(const Tensor& anchor, const Tensor& positive, const Tensor& negative, int64_t reduction) {
  TORCH_CHECK(
      anchor.dim() == 1 || anchor.dim() == 2,
      "improved_triplet_loss(): expected anchor to be [N, D] or [D], but got ",
      anchor.sym_sizes());
  TORCH_CHECK(
      at::isFloatingType(anchor.scalar_type()),
      "improved_triplet_loss(): expected anchor to be of a floating-point dtype, but got ",
      anchor.scalar_type());
  check_like_anchor(anchor, positive, "positive");
  check_like_anchor(anchor, negative, "negative");
  TORCH_CHECK(
      reduction >= Reduction::None && reduction < Reduction::END,
      "improved_triplet_loss(): expected reduction to be 0 (none), 1 (mean) or 2 (sum), but got ",
      reduction);
}

// The shape of the losses before they are reduced: [N], or [] for inputs [D].
SymIntArrayRef row_sizes(const Tensor& anchor) {
  return anchor.sym_sizes().slice(0, anchor.dim() - 1);
}

Tensor reduce(const Tensor& losses, int64_t reduction) {
  return reduction == Reduction::Mean ? losses.mean() : reduction == Reduction::Sum ? losses.sum() : losses;
}

// The gradient of each row's loss, given that of the reduced loss.
Tensor expand_grad(const Tensor& grad_output, const Tensor& anchor, int64_t reduction) {
  if (reduction == Reduction::Mean && anchor.dim() == 2) {
    return grad_output.div(anchor.sym_size(0)).expand_symint(row_sizes(anchor));
  }
  return grad_output.expand_symint(row_sizes(anchor));
}

// A copy only where a row's own elements are apart.
Tensor as_rows(const Tensor& x) {
  const Tensor rows = x.dim() == 2 ? x : x.unsqueeze(0);
  return rows.size(1) <= 1 || rows.stride(1) == 1 ? rows : rows.contiguous();
}

TripletInputs as_rows(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  return {as_rows(anchor), as_rows(positive), as_rows(negative)};
}

// 1 where the hinge max(x, tau) follows x, as clamp's gradient has it, and 0 elsewhere.
Tensor follows(const Tensor& x, double tau) {
  return x.ge(tau).to(x.scalar_type());
}

// Of each row, the differences and the derivatives of the loss by d_an, but for the sign, and by d_ap.
struct Slopes {
  Tensor to_positive;
  Tensor to_negative;
  Tensor by_negative;
  Tensor by_positive;
};

Slopes
slopes(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double tau1, double tau2, double beta) {
  const Tensor to_positive = anchor - positive;
  const Tensor to_negative = anchor - negative;
  const Tensor d_ap = to_positive.square().sum(-1);
  const Tensor d_an = to_negative.square().sum(-1);
  const Tensor by_negative = follows(d_ap - d_an, tau1);
  return {to_positive, to_negative, by_negative, by_negative + beta * follows(d_ap, tau2)};
}

Tensor empty_losses(const Tensor& anchor) {
  return at::empty_symint(row_sizes(anchor), anchor.options().dtype(toOpMathType(anchor.scalar_type())));
}

} // namespace

Tensor improved_triplet_loss_meta(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_inputs(anchor, positive, negative, reduction);
  const auto sizes = reduction == Reduction::None ? row_sizes(anchor) : SymIntArrayRef();
  return at::empty_symint(sizes, anchor.options());
}

Tensor improved_triplet_loss(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_inputs(anchor, positive, negative, reduction);
  const Tensor losses = empty_losses(anchor);
  improved_triplet_loss_stub(
      anchor.device().type(), losses, as_rows(anchor, positive, negative), TripletParameters{tau1, tau2, beta});
  return reduce(losses, reduction).to(anchor.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward_meta(
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction,
    std::array<bool, 3> output_mask) {
  check_inputs(anchor, positive, negative, reduction);
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
    double tau1,
    double tau2,
    double beta,
    int64_t reduction,
    std::array<bool, 3> output_mask) {
  auto grads = improved_triplet_loss_backward_meta(
      grad_output, anchor, positive, negative, tau1, tau2, beta, reduction, output_mask);
  auto& [grad_anchor, grad_positive, grad_negative] = grads;
  const Tensor grad_losses = expand_grad(grad_output.to(toOpMathType(anchor.scalar_type())), anchor, reduction);
  improved_triplet_loss_backward_stub(
      anchor.device().type(),
      TripletInputs{grad_anchor, grad_positive, grad_negative},
      grad_losses.contiguous(),
      as_rows(anchor, positive, negative),
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
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_inputs(anchor, positive, negative, reduction);
  const auto [to_positive, to_negative, by_negative, by_positive] =
      slopes(anchor, positive, negative, tau1, tau2, beta);
  const Tensor d_ap_tangent = 2 * (to_positive * (anchor_tangent - positive_tangent)).sum(-1);
  const Tensor d_an_tangent = 2 * (to_negative * (anchor_tangent - negative_tangent)).sum(-1);
  return reduce(by_positive * d_ap_tangent - by_negative * d_an_tangent, reduction);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> improved_triplet_loss_double_backward(
    const std::optional<Tensor>& grad_grad_anchor,
    const std::optional<Tensor>& grad_grad_positive,
    const std::optional<Tensor>& grad_grad_negative,
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  const auto or_zeros = [&](const std::optional<Tensor>& grad) {
    return grad && grad->defined() ? *grad : at::zeros_like(anchor);
  };
  const Tensor v_anchor = or_zeros(grad_grad_anchor);
  const Tensor v_positive = or_zeros(grad_grad_positive);
  const Tensor v_negative = or_zeros(grad_grad_negative);
  // The gradients are the transposed Jacobian times grad_output, so by grad_output it is the Jacobian times v; by the
  // inputs it is what the gradients are, with v's differences in place of the inputs'.
  const Tensor by_grad_output = _improved_triplet_loss_jvp(
      anchor, positive, negative, v_anchor, v_positive, v_negative, tau1, tau2, beta, reduction);
  const auto [to_positive, to_negative, by_negative, by_positive] =
      slopes(anchor, positive, negative, tau1, tau2, beta);
  const Tensor grad_losses = 2 * expand_grad(grad_output, anchor, reduction);
  const Tensor through_positive = (grad_losses * by_positive).unsqueeze(-1) * (v_anchor - v_positive);
  const Tensor through_negative = (grad_losses * by_negative).unsqueeze(-1) * (v_anchor - v_negative);
  return {by_grad_output, through_positive - through_negative, -through_positive, through_negative};
}

} // namespace at::native
