// Batching rules: how torch.vmap computes an operator for a whole batch at once. VmapLevel.h has their common code.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/VmapLevel.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#else
#include <ATen/ops/_correlate2d.h>
#include <ATen/ops/_correlate2d_kernel_grad.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/depthwise_conv2d.h>
#include <ATen/ops/depthwise_conv2d_backward.h>
#include <ATen/ops/gdh.h>
#include <ATen/ops/roi_pool_backward.h>
#include <ATen/ops/roi_pool_with_indices.h>
#include <ATen/ops/where.h>
#endif

namespace at::native {
namespace {

// For operators on the last dimensions, if the tensor with the most dimensions has at least `least`: with the batch
// dimension first in each tensor, it is also the first of the results.
template <int64_t least>
void leading_batch_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto first = stack->end() - static_cast<ptrdiff_t>(schema.arguments().size());
  const VmapLevel level{c10::ArrayRef<c10::IValue>(&*first, schema.arguments().size())};
  if (level.size()) {
    int64_t dims = 0;
    for (auto value = first; value != stack->end(); ++value) {
      if (value->isTensor() && value->toTensor().defined()) {
        dims = std::max(dims, value->toTensor().dim());
        *value = level.unwrap(value->toTensor());
      }
    }
    TORCH_CHECK(
        dims >= least, schema.name(), ": expected at least ", least, " dimensions, but under vmap there are ", dims);
  }
  op.callBoxed(stack);
  if (level.size()) {
    for (auto value = stack->end() - static_cast<ptrdiff_t>(schema.returns().size()); value != stack->end(); ++value) {
      *value = level.wrap(value->toTensor());
    }
  }
}

// With the batch dimension first, the elements of each sample are contiguous in row-major order.
Tensor gdh_batch_rule(const VmapLevel& level, const Tensor& self) {
  const Tensor all = level.unwrap(self);
  return level.wrap(at::gdh(all).view_symint({*level.size(), c10::multiply_integers(all.sym_sizes().slice(1))}));
}

// [B, N, C, H, W] as [N, B * C, H, W], or without N: channels are independent, so the batch becomes more of them. The
// same for boxes [B, K, C, ...], and for images of kernels [B, K, N, ...].
Tensor into_channels(const Tensor& images) {
  const auto channels = images.dim() - 3;
  return images.movedim(0, channels - 1).flatten(channels - 1, channels);
}

// The inverse, with `channels` channels each.
Tensor out_of_channels(const Tensor& images, const c10::SymInt& batch, const c10::SymInt& channels) {
  return images.unflatten_symint(-3, {batch, channels}).movedim(-4, 0);
}

Tensor depthwise_conv2d_batch_rule(
    const VmapLevel& level,
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation) {
  // The sizes of batched tensors are those of one element of the batch.
  check_depthwise_conv2d(input, weight, bias, stride, padding, dilation);
  const bool has_bias = bias && bias->defined();
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
    const VmapLevel& level,
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  check_depthwise_conv2d_backward(grad_output, input, weight, stride, padding, dilation);
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

// Boxes [B, K, 5] of B inputs with `images` images each as [B * K, 5] of one input that holds all the images. An index
// that is out of range becomes -1, so that it does not select an image of another input; where it can be read here,
// this is the error, since the kernel would report the -1.
Tensor merge_boxes(const Tensor& boxes, const c10::SymInt& images) {
  // Boxes of other dtypes are not changed: the kernel refuses them.
  const Tensor exact = boxes.to(at::toOpMathType(boxes.scalar_type()));
  const Tensor image = exact.select(2, 0);
  const Tensor is_right = image.ge(0).logical_and(image.lt(images)).logical_and(image.eq(image.floor()));
  if (image.is_cpu() && !at::isTensorSubclassLike(image)) {
    const Tensor wrong = image.masked_select(is_right.logical_not());
    TORCH_CHECK(
        wrong.numel() == 0,
        "roi_pool(): expected the first column of boxes to be the index of one of input's ",
        images,
        " images, but it is ",
        wrong[0].item<double>());
  }
  const Tensor first = at::arange(exact.sym_size(0), exact.options()).mul(images).unsqueeze(1);
  const Tensor moved = at::where(is_right, image + first, -1);
  return at::cat({moved.unsqueeze(2), exact.narrow(2, 1, 4)}, 2).flatten(0, 1);
}

std::tuple<Tensor, Tensor> roi_pool_batch_rule(
    const VmapLevel& level,
    const Tensor& input,
    const Tensor& boxes,
    double spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width) {
  const auto pool = [&](const Tensor& input, const Tensor& boxes) {
    return at::roi_pool_with_indices(input, boxes, spatial_scale, pooled_height, pooled_width);
  };
  if (!level.is_batched(boxes)) {
    // The same boxes for each input: the batch becomes more channels.
    const auto [output, indices] = pool(into_channels(level.unwrap(input)), boxes);
    const auto split = [&](const Tensor& x) {
      return level.wrap(out_of_channels(x, *level.size(), input.sym_size(1)));
    };
    return {split(output), split(indices)};
  }
  const Tensor all_boxes = level.unwrap(boxes);
  const auto [output, indices] = level.is_batched(input)
      ? pool(level.unwrap(input).flatten(0, 1), merge_boxes(all_boxes, level.unwrap(input).sym_size(1)))
      : pool(input, all_boxes.flatten(0, 1));
  const auto split = [&](const Tensor& x) {
    return level.wrap(x.unflatten_symint(0, {*level.size(), boxes.sym_size(0)}));
  };
  return {split(output), split(indices)};
}

Tensor roi_pool_backward_batch_rule(
    const VmapLevel& level,
    const Tensor& grad_output,
    const Tensor& boxes,
    const Tensor& indices,
    c10::SymIntArrayRef input_size) {
  const Tensor grad = level.unwrap(grad_output);
  const Tensor places = level.unwrap(indices);
  c10::SymDimVector sizes(input_size);
  if (!level.is_batched(boxes)) {
    sizes[1] = sizes[1] * *level.size();
    const Tensor result = at::roi_pool_backward_symint(into_channels(grad), boxes, into_channels(places), sizes);
    return level.wrap(out_of_channels(result, *level.size(), input_size[1]));
  }
  sizes[0] = sizes[0] * *level.size();
  const Tensor result = at::roi_pool_backward_symint(
      grad.flatten(0, 1), merge_boxes(level.unwrap(boxes), input_size[0]), places.flatten(0, 1), sizes);
  return level.wrap(result.unflatten_symint(0, {*level.size(), input_size[0]}));
}

Tensor correlate2d_batch_rule(
    const VmapLevel& level,
    const Tensor& input,
    const Tensor& kernel,
    c10::SymIntArrayRef offset,
    c10::SymIntArrayRef size,
    std::optional<bool> fft) {
  if (!level.is_batched(kernel)) {
    const Tensor result = at::_correlate2d_symint(into_channels(level.unwrap(input)), kernel, offset, size, fft);
    return level.wrap(out_of_channels(result, *level.size(), input.sym_size(1)));
  }
  const Tensor result =
      at::_correlate2d_symint(level.unwrap(input).flatten(0, 1), level.unwrap(kernel).flatten(0, 1), offset, size, fft);
  return level.wrap(result.unflatten_symint(0, {*level.size(), input.sym_size(0)}));
}

Tensor correlate2d_kernel_grad_batch_rule(
    const VmapLevel& level,
    const Tensor& grad_output,
    const Tensor& input,
    c10::SymIntArrayRef offset,
    c10::SymIntArrayRef size,
    std::optional<bool> fft) {
  const Tensor result = at::_correlate2d_kernel_grad_symint(
      level.unwrap(grad_output).flatten(0, 1), level.unwrap(input).flatten(0, 1), offset, size, fft);
  return level.wrap(result.unflatten_symint(0, {*level.size(), input.sym_size(0)}));
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  using torch::CppFunction;
  m.impl("gdh", BatchRule<gdh_batch_rule, at::_ops::gdh::call>::call);
  m.impl("depthwise_conv2d", BatchRule<depthwise_conv2d_batch_rule, at::_ops::depthwise_conv2d::call>::call);
  m.impl(
      "depthwise_conv2d_backward",
      BatchRule<depthwise_conv2d_backward_batch_rule, at::_ops::depthwise_conv2d_backward::call>::call);
  m.impl("improved_triplet_loss_with_distances", CppFunction::makeFromBoxedFunction<&leading_batch_rule<1>>());
  m.impl("improved_triplet_loss_backward", CppFunction::makeFromBoxedFunction<&leading_batch_rule<1>>());
  m.impl("roi_pool_with_indices", BatchRule<roi_pool_batch_rule, at::_ops::roi_pool_with_indices::call>::call);
  m.impl("roi_pool_backward", BatchRule<roi_pool_backward_batch_rule, at::_ops::roi_pool_backward::call>::call);
  m.impl("_fft_rfft2_abs", CppFunction::makeFromBoxedFunction<&leading_batch_rule<2>>());
  m.impl("_fft_rfft2_abs_backward", CppFunction::makeFromBoxedFunction<&leading_batch_rule<2>>());
  m.impl("_correlate2d", BatchRule<correlate2d_batch_rule, at::_ops::_correlate2d::call>::call);
  m.impl(
      "_correlate2d_kernel_grad",
      BatchRule<correlate2d_kernel_grad_batch_rule, at::_ops::_correlate2d_kernel_grad::call>::call);
}

} // namespace
} // namespace at::native
