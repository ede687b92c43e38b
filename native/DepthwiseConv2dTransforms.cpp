// What torch.vmap makes of depthwise_conv2d.

#include <ATen/ATen.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <torch/library.h>

namespace at::functorch {
namespace {

// A tensor without its batch dimension, or with it at the front.
struct Unwrapped {
  Tensor value;
  bool is_batched = false;

  Unwrapped() = default;
  Unwrapped(const Tensor& tensor, int64_t level) {
    if (tensor.defined()) {
      auto [inner, dim] = unwrapTensorAtLevel(tensor, level);
      is_batched = dim.has_value();
      value = is_batched ? inner.movedim(*dim, 0) : std::move(inner);
    }
  }

  // With a batch dimension in any case.
  Tensor expanded(const SymInt& batch) const {
    if (is_batched) {
      return value;
    }
    SymDimVector sizes{batch};
    sizes.append(value.sym_sizes().begin(), value.sym_sizes().end());
    return value.unsqueeze(0).expand_symint(sizes);
  }
};

// [B, N, C, H, W] to [N, B * C, H, W], or without N: planes do not mix, so a batch is as good as more channels.
Tensor into_channels(const Tensor& images) {
  const auto channels = images.dim() - 3;
  return images.movedim(0, channels - 1).flatten(channels - 1, channels);
}

// Wraps the result whose channels hold the batch again.
Tensor out_of_channels(const Tensor& images, const SymInt& batch, int64_t level) {
  const auto channels = images.dim() - 3;
  return makeBatched(images.unflatten_symint(channels, {batch, images.sym_size(channels) / batch}), channels, level);
}

Tensor depthwise_conv2d_batch_rule(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation) {
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
  const auto layer = maybeCurrentDynamicLayer();
  TORCH_INTERNAL_ASSERT(layer.has_value());
  const auto level = layer->layerId();
  const Unwrapped x(input, level), w(weight, level), b(bias.value_or(Tensor()), level);
  if (!x.is_batched && !w.is_batched && !b.is_batched) {
    return at::depthwise_conv2d_symint(input, weight, bias, stride, padding, dilation);
  }
  if (w.is_batched) {
    const auto batch = w.value.sym_size(0);
    const auto folded_bias = b.value.defined() ? std::optional(b.expanded(batch).flatten(0, 1)) : std::nullopt;
    const Tensor images = into_channels(x.expanded(batch));
    const Tensor result =
        at::depthwise_conv2d_symint(images, w.value.flatten(0, 1), folded_bias, stride, padding, dilation);
    return out_of_channels(result, batch, level);
  }
  // One weight for all: more images. A batched bias is added afterwards, broadcast.
  const auto shared_bias = b.value.defined() && !b.is_batched ? std::optional(b.value) : std::nullopt;
  const bool is_folded = x.is_batched && x.value.dim() == 5;
  Tensor result = at::depthwise_conv2d_symint(
      is_folded ? x.value.flatten(0, 1) : x.value, w.value, shared_bias, stride, padding, dilation);
  if (is_folded) {
    result = result.unflatten_symint(0, {x.value.sym_size(0), x.value.sym_size(1)});
  }
  if (b.is_batched) {
    Tensor added = b.value.unsqueeze(-1).unsqueeze(-1);
    const auto logical_dim = x.value.dim() - (x.is_batched ? 1 : 0);
    result = result.add(logical_dim == 4 ? added.unsqueeze(1) : added);
  }
  return makeBatched(result, 0, level);
}

std::tuple<Tensor, Tensor, Tensor> depthwise_conv2d_backward_batch_rule(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
  const auto layer = maybeCurrentDynamicLayer();
  TORCH_INTERNAL_ASSERT(layer.has_value());
  const auto level = layer->layerId();
  const Unwrapped g(grad_output, level), x(input, level), w(weight, level);
  if (!g.is_batched && !x.is_batched && !w.is_batched) {
    return at::depthwise_conv2d_backward_symint(grad_output, input, weight, stride, padding, dilation, output_mask);
  }
  const auto batch = (g.is_batched ? g : x.is_batched ? x : w).value.sym_size(0);
  auto [grad_input, grad_weight, grad_bias] = at::depthwise_conv2d_backward_symint(
      into_channels(g.expanded(batch)),
      into_channels(x.expanded(batch)),
      w.expanded(batch).flatten(0, 1),
      stride,
      padding,
      dilation,
      output_mask);
  const auto unfolded = [&](const Tensor& parameter) {
    return parameter.defined()
        ? makeBatched(parameter.unflatten_symint(0, {batch, parameter.sym_size(0) / batch}), 0, level)
        : parameter;
  };
  return {
      grad_input.defined() ? out_of_channels(grad_input, batch, level) : grad_input,
      unfolded(grad_weight),
      unfolded(grad_bias)};
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("depthwise_conv2d", depthwise_conv2d_batch_rule);
  m.impl("depthwise_conv2d_backward", depthwise_conv2d_backward_batch_rule);
}

} // namespace
} // namespace at::functorch
