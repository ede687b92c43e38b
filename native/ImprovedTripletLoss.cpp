#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Arguments.h>
#include <ATen/native/ImprovedTripletLoss.h>
#include <c10/util/accumulate.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
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

void check_triplets(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  TORCH_CHECK(anchor.dim() >= 1, "improved_triplet_loss(): expected anchor to be [..., D], but got []");
  check_floating("improved_triplet_loss(): expected anchor", anchor);
  const auto sizes = anchor.sym_sizes();
  for (const auto& [expected, other] :
       {std::pair("improved_triplet_loss(): expected positive", positive),
        std::pair("improved_triplet_loss(): expected negative", negative)}) {
    const auto found = other.sym_sizes();
    TORCH_CHECK(found == sizes, expected, " to have anchor's shape ", sizes, ", but got ", found);
    check_like(expected, other, "anchor", anchor);
  }
}

// The shape of the losses: anchor's without the last dimension.
SymIntArrayRef row_sizes(const Tensor& anchor) {
  return anchor.sym_sizes().slice(0, anchor.dim() - 1);
}

// The losses and the distances, [..., 2], in the type of the computation.
std::tuple<Tensor, Tensor> empty_results(const Tensor& anchor) {
  SymDimVector sizes(row_sizes(anchor));
  const auto options = anchor.options().dtype(toOpMathType(anchor.scalar_type()));
  const Tensor losses = at::empty_symint(sizes, options);
  sizes.emplace_back(2);
  return {losses, at::empty_symint(sizes, options)};
}

void check_rows(const char* name, const Tensor& rows, SymIntArrayRef sizes, const Tensor& anchor) {
  const auto dtype = toOpMathType(anchor.scalar_type());
  TORCH_CHECK(
      rows.sym_sizes() == sizes && rows.scalar_type() == dtype && rows.device() == anchor.device(),
      "improved_triplet_loss(): expected ",
      name,
      " to be ",
      sizes,
      " of dtype ",
      dtype,
      " on device ",
      anchor.device(),
      ", but got ",
      rows.sym_sizes(),
      " of dtype ",
      rows.scalar_type(),
      " on device ",
      rows.device());
}

void check_distances(const Tensor& distances, const Tensor& anchor) {
  SymDimVector sizes(row_sizes(anchor));
  sizes.emplace_back(2);
  check_rows("distances", distances, sizes, anchor);
}

TripletInputs as_rows(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  const auto rows = c10::multiply_integers(anchor.sizes().slice(0, anchor.dim() - 1));
  const auto reshape = [&](const Tensor& x) { return x.dim() == 2 ? x : x.reshape({rows, x.size(-1)}); };
  return {reshape(anchor), reshape(positive), reshape(negative)};
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
  TORCH_CHECK_VALUE(
      reduction == "none" || reduction == "mean" || reduction == "sum",
      "improved_triplet_loss(): expected reduction to be 'none', 'mean' or 'sum', but got '",
      reduction,
      "'");
  const Tensor losses =
      std::get<0>(at::improved_triplet_loss_with_distances(anchor, positive, negative, tau1, tau2, beta));
  // Half types are rounded once, after the reduction.
  return (reduction == "mean" ? losses.mean() : reduction == "sum" ? losses.sum() : losses).to(anchor.scalar_type());
}

std::tuple<Tensor, Tensor> improved_triplet_loss_with_distances_meta(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta) {
  check_triplets(anchor, positive, negative);
  return empty_results(anchor);
}

std::tuple<Tensor, Tensor> improved_triplet_loss_with_distances(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta) {
  check_triplets(anchor, positive, negative);
  auto results = empty_results(anchor);
  improved_triplet_loss_stub(
      anchor.device().type(),
      std::get<0>(results),
      std::get<1>(results),
      as_rows(anchor, positive, negative),
      TripletParameters{tau1, tau2, beta});
  return results;
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward_meta(
    const Tensor& grad_losses,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    std::array<bool, 3> output_mask) {
  check_triplets(anchor, positive, negative);
  check_distances(distances, anchor);
  check_rows("grad_losses", grad_losses, row_sizes(anchor), anchor);
  const auto grad = [&](int64_t i) {
    return output_mask[i] ? at::empty_like(anchor, MemoryFormat::Contiguous) : Tensor();
  };
  return {grad(0), grad(1), grad(2)};
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward(
    const Tensor& grad_losses,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta,
    std::array<bool, 3> output_mask) {
  auto grads = improved_triplet_loss_backward_meta(
      grad_losses, anchor, positive, negative, distances, tau1, tau2, beta, output_mask);
  const auto& [grad_anchor, grad_positive, grad_negative] = grads;
  improved_triplet_loss_backward_stub(
      anchor.device().type(),
      TripletInputs{grad_anchor, grad_positive, grad_negative},
      grad_losses.contiguous(),
      distances.contiguous(),
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
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta) {
  check_triplets(anchor, positive, negative);
  check_distances(distances, anchor);
  const auto difference = [&](const Tensor& x, const Tensor& y) {
    return x.to(distances.scalar_type()) - y.to(distances.scalar_type());
  };
  // TripletFormula::slopes, in tensor operations.
  const Tensor d_ap = distances.select(-1, 0), d_an = distances.select(-1, 1);
  const Tensor by_an = (d_ap - d_an).ge(tau1).to(distances.scalar_type()).neg();
  const Tensor by_ap = beta * d_ap.ge(tau2).to(distances.scalar_type()) - by_an;
  const Tensor d_ap_tangent = 2 * (difference(anchor, positive) * difference(anchor_tangent, positive_tangent)).sum(-1);
  const Tensor d_an_tangent = 2 * (difference(anchor, negative) * difference(anchor_tangent, negative_tangent)).sum(-1);
  return by_ap * d_ap_tangent + by_an * d_an_tangent;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> improved_triplet_loss_double_backward(
    const std::optional<Tensor>& grad_grad_anchor,
    const std::optional<Tensor>& grad_grad_positive,
    const std::optional<Tensor>& grad_grad_negative,
    const Tensor& grad_losses,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    const Tensor& distances,
    double tau1,
    double tau2,
    double beta) {
  const auto or_zeros = [&](const std::optional<Tensor>& grad) {
    return grad && grad->defined() ? *grad : at::zeros_like(anchor);
  };
  const Tensor v_anchor = or_zeros(grad_grad_anchor);
  const Tensor v_positive = or_zeros(grad_grad_positive);
  const Tensor v_negative = or_zeros(grad_grad_negative);
  // The gradients are grad_losses times H(anchor, positive, negative), with a symmetric matrix H. So the derivative by
  // grad_losses is that of the losses in the direction v, and those by the inputs are the gradients with v for the
  // inputs.
  const Tensor by_grad_losses = _improved_triplet_loss_jvp(
      anchor, positive, negative, v_anchor, v_positive, v_negative, distances, tau1, tau2, beta);
  return std::tuple_cat(
      std::make_tuple(by_grad_losses),
      at::improved_triplet_loss_backward(
          grad_losses, v_anchor, v_positive, v_negative, distances, tau1, tau2, beta, {true, true, true}));
}

} // namespace at::native
