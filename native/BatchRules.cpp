// Batching rules: what torch.vmap does with an operator in place of calling it for each element of the batch.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/VmapLevel.h>
#include <torch/library.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#else
#include <ATen/ops/improved_triplet_loss.h>
#include <ATen/ops/improved_triplet_loss_backward.h>
#endif

namespace at::native {
namespace {

// [B, N, D] or [B, D] as [B * N, D]: the rows know nothing of one another.
Tensor merge_rows(const Tensor& x) {
  return x.dim() == 3 ? x.flatten(0, 1) : x;
}

Tensor improved_triplet_loss_batch_rule(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  const VmapLevel level{anchor, positive, negative};
  if (!level.size()) {
    return at::improved_triplet_loss(anchor, positive, negative, tau1, tau2, beta, reduction);
  }
  const Tensor a = level.unwrap(anchor);
  const Tensor p = level.unwrap(positive);
  const Tensor n = level.unwrap(negative);
  TORCH_CHECK(
      a.sym_sizes() == p.sym_sizes() && a.sym_sizes() == n.sym_sizes(),
      "improved_triplet_loss(): expected anchor, positive and negative to have the same shape, but under vmap got ",
      a.sym_sizes().slice(1),
      ", ",
      p.sym_sizes().slice(1),
      " and ",
      n.sym_sizes().slice(1));
  Tensor losses =
      at::improved_triplet_loss(merge_rows(a), merge_rows(p), merge_rows(n), tau1, tau2, beta, Reduction::None);
  if (a.dim() == 3) {
    losses = losses.view_symint({a.sym_size(0), a.sym_size(1)});
    losses = reduction == Reduction::Mean ? losses.mean(1) : reduction == Reduction::Sum ? losses.sum(1) : losses;
  }
  return level.wrap(losses);
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward_batch_rule(
    const Tensor& grad_output,
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction,
    std::array<bool, 3> output_mask) {
  const VmapLevel level{grad_output, anchor, positive, negative};
  if (!level.size()) {
    return at::improved_triplet_loss_backward(
        grad_output, anchor, positive, negative, tau1, tau2, beta, reduction, output_mask);
  }
  const Tensor a = level.unwrap(anchor);
  const auto sizes = a.sym_sizes();
  Tensor grad = level.unwrap(grad_output);
  if (a.dim() == 3 && reduction != Reduction::None) {
    // Each row gets its share of the batch's one gradient.
    grad = reduction == Reduction::Mean ? grad.div(a.sym_size(1)) : grad;
    grad = grad.unsqueeze(1).expand_symint(sizes.slice(0, 2));
  }
  const auto grads = at::improved_triplet_loss_backward(
      grad.flatten(),
      merge_rows(a),
      merge_rows(level.unwrap(positive)),
      merge_rows(level.unwrap(negative)),
      tau1,
      tau2,
      beta,
      Reduction::None,
      output_mask);
  const auto split = [&](const Tensor& x) { return level.wrap(x.defined() ? x.view_symint(sizes) : x); };
  return {split(std::get<0>(grads)), split(std::get<1>(grads)), split(std::get<2>(grads))};
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("improved_triplet_loss", improved_triplet_loss_batch_rule);
  m.impl("improved_triplet_loss_backward", improved_triplet_loss_backward_batch_rule);
}

} // namespace
} // namespace at::native
