// Batching rules: how torch.vmap computes an operator for a whole batch at once. VmapLevel.h has what they share.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/Reduction.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/ImprovedTripletLoss.h>
#include <ATen/native/VmapLevel.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#else
#include <ATen/ops/_correlate2d.h>
#include <ATen/ops/_correlate2d_kernel_grad.h>
#include <ATen/ops/_fft_rfft2_abs.h>
#include <ATen/ops/_fft_rfft2_abs_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/depthwise_conv2d.h>
#include <ATen/ops/depthwise_conv2d_backward.h>
#include <ATen/ops/gdh.h>
#include <ATen/ops/improved_triplet_loss_backward.h>
#include <ATen/ops/improved_triplet_loss_with_distances.h>
#include <ATen/ops/roi_pool_backward.h>
#include <ATen/ops/roi_pool_with_indices.h>
#include <ATen/ops/where.h>
#endif

namespace at::native {
namespace {

// With the batch dimension first, the elements of each sample are contiguous in row-major order.
Tensor gdh_batch_rule(const Tensor& self) {
  const VmapLevel level{self};
  if (!level.size()) {
    return at::gdh(self);
  }
  const Tensor all = level.unwrap(self);
  return level.wrap(at::gdh(all).view_symint({*level.size(), c10::multiply_integers(all.sym_sizes().slice(1))}));
}

// [B, N, C, H, W] as [N, B * C, H, W], or without N: channels are independent, so the batch becomes more of them.
Tensor into_channels(const Tensor& images) {
  const auto channels = images.dim() - 3;
  return images.movedim(0, channels - 1).flatten(channels - 1, channels);
}

// The inverse, with `channels` channels each.
Tensor out_of_channels(const Tensor& images, const c10::SymInt& batch, const c10::SymInt& channels) {
  return images.unflatten_symint(-3, {batch, channels}).movedim(-4, 0);
}

Tensor depthwise_conv2d_batch_rule(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation) {
  // The sizes of batched tensors are those of one element of the batch.
  check_depthwise_conv2d(input, weight, bias, stride, padding, dilation);
  const bool has_bias = bias && bias->defined();
  const VmapLevel level{input, weight, has_bias ? *bias : Tensor()};
  if (!level.size()) {
    return at::depthwise_conv2d_symint(input, weight, bias, stride, padding, dilation);
  }
  if (!level.is_batched(weight) && !(has_bias && level.is_batched(*bias))) {
    // One weight for all: the batch becomes more images.
    const Tensor batch = level.unwrap(input);
    const bool is_folded = batch.dim() == 5;
    const Tensor result =
        at::depthwise_conv2d_symint(is_folded ? batch.flatten(0, 1) : batch, weight, bias, stride, padding, dilation);
    return level.wrap(is_folded ? result.unflatten_symint(0, {*level.size(), input.sym_size(0)}) : result);
  }
  const auto biases = has_bias ? std::optional(level.unwrap(*bias).flatten(0, 1)) : std::nullopt;
  const Tensor result = at::depthwise_conv2d_symint(
      into_channels(level.unwrap(input)), level.unwrap(weight).flatten(0, 1), biases, stride, padding, dilation);
  return level.wrap(out_of_channels(result, *level.size(), weight.sym_size(0)));
}

std::tuple<Tensor, Tensor, Tensor> depthwise_conv2d_backward_batch_rule(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  check_depthwise_conv2d_backward(grad_output, input, weight, stride, padding, dilation);
  const VmapLevel level{grad_output, input, weight};
  if (!level.size()) {
    return at::depthwise_conv2d_backward_symint(grad_output, input, weight, stride, padding, dilation, output_mask);
  }
  const auto [grad_input, grad_weight, grad_bias] = at::depthwise_conv2d_backward_symint(
      into_channels(level.unwrap(grad_output)),
      into_channels(level.unwrap(input)),
      level.unwrap(weight).flatten(0, 1),
      stride,
      padding,
      dilation,
      output_mask);
  const auto split = [&](const Tensor& x) {
    return x.defined() ? level.wrap(x.unflatten_symint(0, {*level.size(), weight.sym_size(0)})) : x;
  };
  return {
      grad_input.defined() ? level.wrap(out_of_channels(grad_input, *level.size(), input.sym_size(-3))) : grad_input,
      split(grad_weight),
      split(grad_bias)};
}

// [B, N, D] or [B, D] as [B * N, D]: rows are independent.
Tensor merge_rows(const Tensor& x) {
  return x.dim() == 3 ? x.flatten(0, 1) : x;
}

// The dtype that losses are reduced in.
ScalarType reduced_in(const Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? kFloat : x.scalar_type();
}

std::tuple<Tensor, Tensor> improved_triplet_loss_batch_rule(
    const Tensor& anchor,
    const Tensor& positive,
    const Tensor& negative,
    double tau1,
    double tau2,
    double beta,
    int64_t reduction) {
  check_triplet_inputs(anchor, positive, negative, reduction);
  const VmapLevel level{anchor, positive, negative};
  if (!level.size()) {
    return at::improved_triplet_loss_with_distances(anchor, positive, negative, tau1, tau2, beta, reduction);
  }
  const Tensor a = level.unwrap(anchor);
  const bool is_reduced = a.dim() == 3 && reduction != Reduction::None;
  // Losses of half types are rounded once, after the reduction.
  const auto rows = [&](const Tensor& x) {
    const Tensor merged = merge_rows(level.unwrap(x));
    return is_reduced ? merged.to(reduced_in(a)) : merged;
  };
  auto [loss, distances] = at::improved_triplet_loss_with_distances(
      rows(anchor), rows(positive), rows(negative), tau1, tau2, beta, Reduction::None);
  if (a.dim() == 3) {
    distances = distances.view_symint({a.sym_size(0), a.sym_size(1), 2});
    loss = loss.view_symint(a.sym_sizes().slice(0, 2));
  }
  if (is_reduced) {
    loss = (reduction == Reduction::Mean ? loss.mean(1) : loss.sum(1)).to(a.scalar_type());
  }
  return {level.wrap(loss), level.wrap(distances)};
}

std::tuple<Tensor, Tensor, Tensor> improved_triplet_loss_backward_batch_rule(
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
  const VmapLevel level{grad_output, anchor, positive, negative, distances};
  if (!level.size()) {
    return at::improved_triplet_loss_backward(
        grad_output, anchor, positive, negative, distances, tau1, tau2, beta, reduction, output_mask);
  }
  const Tensor a = level.unwrap(anchor);
  const Tensor p = level.unwrap(positive);
  const Tensor n = level.unwrap(negative);
  const Tensor d = level.unwrap(distances);
  Tensor grad = level.unwrap(grad_output);
  const auto sizes = a.sym_sizes();
  TORCH_CHECK(
      d.dim() == a.dim() && grad.dim() == (reduction == Reduction::None ? a.dim() - 1 : 1),
      "improved_triplet_loss_backward(): under vmap got grad_output ",
      grad.sym_sizes().slice(1),
      " and distances ",
      d.sym_sizes().slice(1),
      " for anchor ",
      sizes.slice(1));
  if (a.dim() == 3 && reduction != Reduction::None) {
    // The loss of each batch element has one gradient, which its rows share.
    grad = reduction == Reduction::Mean ? grad.to(reduced_in(a)).div(a.sym_size(1)) : grad;
    grad = grad.unsqueeze(1).expand_symint(sizes.slice(0, 2));
  }
  const auto grads = at::improved_triplet_loss_backward(
      grad.flatten(),
      merge_rows(a),
      merge_rows(p),
      merge_rows(n),
      merge_rows(d),
      tau1,
      tau2,
      beta,
      Reduction::None,
      output_mask);
  const auto split = [&](const Tensor& x) { return level.wrap(x.defined() ? x.view_symint(sizes) : x); };
  return {split(std::get<0>(grads)), split(std::get<1>(grads)), split(std::get<2>(grads))};
}

// Boxes [B, K, 5] of B inputs with `images` images each as [B * K, 5] of one input that holds all the images. An index
// that is out of range becomes -1, so that it does not select an image of another input.
Tensor merge_boxes(const Tensor& boxes, const c10::SymInt& images) {
  // Other dtypes than those of floating-point numbers stay, so that they are refused.
  const Tensor exact = boxes.to(at::toOpMathType(boxes.scalar_type()));
  const Tensor image = exact.select(2, 0);
  const Tensor first = at::arange(exact.sym_size(0), exact.options()).mul(images).unsqueeze(1);
  const Tensor moved = at::where(image.ge(0).logical_and(image.lt(images)), image + first, -1);
  return at::cat({moved.unsqueeze(2), exact.narrow(2, 1, 4)}, 2).flatten(0, 1);
}

// [K, B * C, ...] as [B, K, C, ...].
Tensor split_channels(const Tensor& x, const c10::SymInt& batch) {
  return x.unflatten_symint(1, {batch, -1}).movedim(1, 0);
}

// [B, K, C, ...] as [K, B * C, ...].
Tensor merge_channels(const Tensor& x) {
  return x.movedim(0, 1).flatten(1, 2);
}

std::tuple<Tensor, Tensor> roi_pool_batch_rule(
    const Tensor& input,
    const Tensor& boxes,
    double spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width) {
  const VmapLevel level{input, boxes};
  const auto pool = [&](const Tensor& input, const Tensor& boxes) {
    return at::roi_pool_with_indices(input, boxes, spatial_scale, pooled_height, pooled_width);
  };
  if (!level.size()) {
    return pool(input, boxes);
  }
  if (!level.is_batched(boxes)) {
    // The same boxes for each input: the batch becomes more channels.
    const auto [output, indices] = pool(merge_channels(level.unwrap(input)), boxes);
    const auto split = [&](const Tensor& x) { return level.wrap(split_channels(x, *level.size())); };
    return {split(output), split(indices)};
  }
  const Tensor all_boxes = level.unwrap(boxes);
  const auto [output, indices] = level.is_batched(input)
      ? pool(level.unwrap(input).flatten(0, 1), merge_boxes(all_boxes, level.unwrap(input).sym_size(1)))
      : pool(input, all_boxes.flatten(0, 1));
  const auto split = [&](const Tensor& x) { return level.wrap(x.unflatten_symint(0, {*level.size(), -1})); };
  return {split(output), split(indices)};
}

Tensor roi_pool_backward_batch_rule(
    const Tensor& grad_output,
    const Tensor& boxes,
    const Tensor& indices,
    c10::SymIntArrayRef input_size) {
  const VmapLevel level{grad_output, boxes, indices};
  if (!level.size()) {
    return at::roi_pool_backward_symint(grad_output, boxes, indices, input_size);
  }
  const Tensor grad = level.unwrap(grad_output);
  const Tensor places = level.unwrap(indices);
  c10::SymDimVector sizes(input_size);
  if (!level.is_batched(boxes)) {
    sizes[1] = sizes[1] * *level.size();
    const Tensor result = at::roi_pool_backward_symint(merge_channels(grad), boxes, merge_channels(places), sizes);
    return level.wrap(split_channels(result, *level.size()));
  }
  sizes[0] = sizes[0] * *level.size();
  const Tensor result = at::roi_pool_backward_symint(
      grad.flatten(0, 1), merge_boxes(level.unwrap(boxes), input_size[0]), places.flatten(0, 1), sizes);
  return level.wrap(result.unflatten_symint(0, {*level.size(), -1}));
}

std::tuple<Tensor, Tensor> rfft2_abs_batch_rule(const Tensor& self) {
  const VmapLevel level{self};
  if (!level.size()) {
    return at::_fft_rfft2_abs(self);
  }
  const Tensor batch = level.unwrap(self);
  TORCH_CHECK(
      batch.dim() >= 3, "rfft2_abs(): expected input to have at least two dimensions, but under vmap got ", self.dim());
  const auto [magnitude, spectrum] = at::_fft_rfft2_abs(batch);
  return {level.wrap(magnitude), level.wrap(spectrum)};
}

Tensor rfft2_abs_backward_batch_rule(
    const Tensor& grad_magnitude,
    const Tensor& spectrum,
    const Tensor& magnitude,
    c10::SymInt last_dim_size) {
  const VmapLevel level{grad_magnitude, spectrum, magnitude};
  if (!level.size()) {
    return at::_fft_rfft2_abs_backward_symint(grad_magnitude, spectrum, magnitude, last_dim_size);
  }
  return level.wrap(
      at::_fft_rfft2_abs_backward_symint(
          level.unwrap(grad_magnitude), level.unwrap(spectrum), level.unwrap(magnitude), last_dim_size));
}

// The kernels of a batch, [B, kH, kW] or, one for each of K images, [B, K, kH, kW], as those for the images of
// merge_images.
Tensor merge_kernels(const VmapLevel& level, const Tensor& kernel) {
  const Tensor kernels = level.unwrap(kernel);
  return kernels.dim() == 4 ? kernels.flatten(0, 1) : kernels;
}

// [B, K, ...] as [B * K, ...] where each of K images has a kernel of its own.
Tensor merge_images(const VmapLevel& level, const Tensor& images, bool have_own_kernels) {
  const Tensor all = level.unwrap(images);
  return have_own_kernels ? all.flatten(0, 1) : all;
}

Tensor correlate2d_batch_rule(
    const Tensor& input,
    const Tensor& kernel,
    c10::SymIntArrayRef offset,
    c10::SymIntArrayRef size,
    std::optional<bool> fft) {
  const VmapLevel level{input, kernel};
  if (!level.size()) {
    return at::_correlate2d_symint(input, kernel, offset, size, fft);
  }
  if (!level.is_batched(kernel) && kernel.dim() == 2) {
    return level.wrap(at::_correlate2d_symint(level.unwrap(input), kernel, offset, size, fft));
  }
  const bool have_own_kernels = kernel.dim() == 3;
  const Tensor result = at::_correlate2d_symint(
      merge_images(level, input, have_own_kernels), merge_kernels(level, kernel), offset, size, fft);
  return level.wrap(have_own_kernels ? result.unflatten_symint(0, {*level.size(), kernel.sym_size(0)}) : result);
}

Tensor correlate2d_kernel_grad_batch_rule(
    const Tensor& grad_output,
    const Tensor& input,
    c10::SymIntArrayRef offset,
    c10::SymIntArrayRef kernel_size,
    std::optional<bool> fft) {
  const VmapLevel level{grad_output, input};
  if (!level.size()) {
    return at::_correlate2d_kernel_grad_symint(grad_output, input, offset, kernel_size, fft);
  }
  const bool have_own_kernels = kernel_size.size() == 3;
  c10::SymDimVector sizes(kernel_size.slice(kernel_size.size() - 2));
  sizes.insert(sizes.begin(), have_own_kernels ? *level.size() * kernel_size[0] : *level.size());
  const Tensor result = at::_correlate2d_kernel_grad_symint(
      merge_images(level, grad_output, have_own_kernels),
      merge_images(level, input, have_own_kernels),
      offset,
      sizes,
      fft);
  return level.wrap(have_own_kernels ? result.unflatten_symint(0, {*level.size(), kernel_size[0]}) : result);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("gdh", gdh_batch_rule);
  m.impl("depthwise_conv2d", depthwise_conv2d_batch_rule);
  m.impl("depthwise_conv2d_backward", depthwise_conv2d_backward_batch_rule);
  m.impl("improved_triplet_loss_with_distances", improved_triplet_loss_batch_rule);
  m.impl("improved_triplet_loss_backward", improved_triplet_loss_backward_batch_rule);
  m.impl("roi_pool_with_indices", roi_pool_batch_rule);
  m.impl("roi_pool_backward", roi_pool_backward_batch_rule);
  m.impl("_fft_rfft2_abs", rfft2_abs_batch_rule);
  m.impl("_fft_rfft2_abs_backward", rfft2_abs_backward_batch_rule);
  m.impl("_correlate2d", correlate2d_batch_rule);
  m.impl("_correlate2d_kernel_grad", correlate2d_kernel_grad_batch_rule);
}

} // namespace
} // namespace at::native
