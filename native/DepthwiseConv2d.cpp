#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/Context.h>
#include <ATen/native/Arguments.h>
#include <ATen/native/DepthwiseConv2d.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_depthwise_conv2d_double_backward_native.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/depthwise_conv2d.h>
#include <ATen/ops/depthwise_conv2d_backward.h>
#include <ATen/ops/depthwise_conv2d_backward_native.h>
#include <ATen/ops/depthwise_conv2d_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mkldnn_convolution.h>
#endif

#include <limits>

namespace at::native {

DEFINE_DISPATCH(depthwise_conv2d_stub);
DEFINE_DISPATCH(depthwise_conv2d_backward_input_stub);
DEFINE_DISPATCH(depthwise_conv2d_backward_weight_stub);

namespace {

constexpr std::array<const char*, 2> kAxisNames = {"height", "width"};

// The value of a parameter for an axis; a single value applies to both.
const c10::SymInt& along(SymIntArrayRef values, size_t axis) {
  return values[values.size() == 1 ? 0 : axis];
}

// The largest padding, dilation and kernel size: products and sums of sizes then fit into 64 bits.
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

// `expected` begins the message.
void check_parameter(
    const char* expected,
    SymIntArrayRef values,
    int64_t least,
    int64_t most = std::numeric_limits<int64_t>::max()) {
  TORCH_CHECK(values.size() == 1 || values.size() == 2, expected, " to be one or two integers, got ", values);
  for (const auto& value : values) {
    TORCH_CHECK(value >= least, expected, " to be at least ", least, ", got ", values);
    TORCH_CHECK(value <= most, expected, " to be at most ", most, ", got ", values);
  }
}

// How many pixels the dilated kernel covers.
c10::SymInt kernel_extent(const Tensor& weight, SymIntArrayRef dilations, size_t axis) {
  return along(dilations, axis) * (weight.sym_size(static_cast<int64_t>(axis) + 2) - 1) + 1;
}

c10::SymInt output_size(
    const Tensor& input,
    const Tensor& weight,
    SymIntArrayRef strides,
    SymIntArrayRef paddings,
    SymIntArrayRef dilations,
    size_t axis) {
  const c10::SymInt padded = input.sym_size(static_cast<int64_t>(axis) - 2) + 2 * along(paddings, axis);
  const c10::SymInt extent = kernel_extent(weight, dilations, axis);
  TORCH_CHECK(
      padded >= extent,
      "depthwise_conv2d(): expected weight to be no larger than the padded input, got a ",
      kAxisNames[axis],
      " of ",
      extent,
      " (dilation included) for an input of ",
      padded,
      " (padding included)");
  return (padded - extent) / along(strides, axis) + 1;
}

void check_input_and_weight(const Tensor& input, const Tensor& weight) {
  TORCH_CHECK(
      input.dim() == 3 || input.dim() == 4,
      "depthwise_conv2d(): expected input to be 4-D [N, C, H, W] or 3-D [C, H, W], got ",
      input.sym_sizes());
  TORCH_CHECK(
      weight.dim() == 4 && weight.sym_size(1) == 1 && weight.sym_size(2) > 0 && weight.sym_size(2) <= kLargest &&
          weight.sym_size(3) > 0 && weight.sym_size(3) <= kLargest,
      "depthwise_conv2d(): expected weight to be 4-D [C * multiplier, 1, kH, kW] with kH and kW from 1 to 2^31 - 1, "
      "got ",
      weight.sym_sizes());
  const auto channels = input.sym_size(-3);
  TORCH_CHECK(
      channels > 0 ? weight.sym_size(0) % channels == 0 : weight.sym_size(0) == 0,
      "depthwise_conv2d(): expected the first size of weight to be a multiple of input's ",
      channels,
      " channels, got ",
      weight.sym_sizes());
  check_floating("depthwise_conv2d(): expected input", input);
  check_like("depthwise_conv2d(): expected weight", weight, "input", input);
}

// Checks everything but the bias and the gradient. Returns the sizes of the result.
c10::SymDimVector output_sizes(
    const Tensor& input,
    const Tensor& weight,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation) {
  check_input_and_weight(input, weight);
  check_parameter("depthwise_conv2d(): expected stride", stride, 1);
  check_parameter("depthwise_conv2d(): expected padding", padding, 0, kLargest);
  check_parameter("depthwise_conv2d(): expected dilation", dilation, 1, kLargest);
  c10::SymDimVector sizes(input.sym_sizes().slice(0, input.dim() - 3));
  sizes.push_back(weight.sym_size(0));
  for (const size_t axis : {0, 1}) {
    sizes.push_back(output_size(input, weight, stride, padding, dilation, axis));
  }
  return sizes;
}

} // namespace

c10::SymDimVector check_depthwise_conv2d(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation) {
  auto sizes = output_sizes(input, weight, stride, padding, dilation);
  if (bias && bias->defined()) {
    TORCH_CHECK(
        bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0),
        "depthwise_conv2d(): expected bias to be 1-D with ",
        weight.sym_size(0),
        " elements, got ",
        bias->sym_sizes());
    check_like("depthwise_conv2d(): expected bias", *bias, "input", input);
  }
  return sizes;
}

void check_depthwise_conv2d_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation) {
  const auto sizes = output_sizes(input, weight, stride, padding, dilation);
  TORCH_CHECK(
      grad_output.sym_sizes() == SymIntArrayRef(sizes),
      "depthwise_conv2d(): expected grad_output to have the sizes of the result, ",
      sizes,
      ", got ",
      grad_output.sym_sizes());
  check_like("depthwise_conv2d(): expected grad_output", grad_output, "input", input);
}

namespace {

Tensor batched(const Tensor& image) {
  return image.dim() == 3 ? image.unsqueeze(0) : image;
}

DepthwiseConv2dGeometry make_geometry(
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef output,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation) {
  const auto pair = [](IntArrayRef values) { return std::array<int64_t, 2>{values.front(), values.back()}; };
  return {
      input.dim() == 4 ? input.size(0) : 1,
      input.size(-3),
      weight.size(0) / input.size(-3),
      {input.size(-2), input.size(-1)},
      pair(output.slice(output.size() - 2)),
      {weight.size(2), weight.size(3)},
      pair(stride),
      pair(padding),
      pair(dilation)};
}

// Whether oneDNN's forward is faster, as measured on Zen 4: for images in channels_last that are larger than the L2
// cache, which it reads at 1.2 to 1.5 times the speed, if it computes in their dtype.
bool is_for_onednn(const Tensor& input, const DepthwiseConv2dGeometry& g) {
#if defined(__x86_64__)
  using Pair = std::array<int64_t, 2>;
  const auto dtype = input.scalar_type();
  return input.is_cpu() && input.numel() >= 1 << 17 && format_of_images(input) == MemoryFormat::ChannelsLast &&
      (dtype == kFloat || (dtype == kBFloat16 && __builtin_cpu_supports("avx512bf16"))) && g.multiplier == 1 &&
      g.channels > 1 && g.kernel == Pair{3, 3} && std::max(g.padding[0], g.padding[1]) <= 1 &&
      g.dilation == Pair{1, 1} && get_cpu_capability() == CPUCapability::AVX512 && at::hasMKLDNN() &&
      at::globalContext().userEnabledMkldnn();
#else
  return false;
#endif
}

} // namespace

Tensor depthwise_conv2d_meta_symint(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation) {
  const auto sizes = check_depthwise_conv2d(input, weight, bias, stride, padding, dilation);
  return at::empty_symint(sizes, input.options().memory_format(format_of_images(input)));
}

Tensor depthwise_conv2d(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation) {
  Tensor output = depthwise_conv2d_meta_symint(
      input,
      weight,
      bias,
      c10::fromIntArrayRefSlow(stride),
      c10::fromIntArrayRefSlow(padding),
      c10::fromIntArrayRefSlow(dilation));
  if (output.numel() == 0) {
    return output;
  }
  const auto g = make_geometry(input, weight, output.sizes(), stride, padding, dilation);
  if (is_for_onednn(input, g)) {
    output.reset(); // for the memory to be used again
    return at::mkldnn_convolution(
        input.contiguous(MemoryFormat::ChannelsLast), weight, bias, padding, stride, dilation, g.channels);
  }
  depthwise_conv2d_stub(
      input.device().type(),
      batched(output),
      batched(input).contiguous(format_of_images(input)),
      weight.contiguous(),
      bias && bias->defined() ? bias->contiguous() : Tensor(),
      g);
  return output;
}

Tensor depthwise_conv2d_padding_symint(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    SymIntArrayRef stride,
    std::string_view padding,
    SymIntArrayRef dilation) {
  TORCH_CHECK(
      padding == "same" || padding == "valid",
      "depthwise_conv2d(): expected padding to be 'same' or 'valid', got '",
      padding,
      "'");
  if (padding == "valid") {
    return at::depthwise_conv2d_symint(input, weight, bias, stride, c10::SymInt(0), dilation);
  }
  check_input_and_weight(input, weight);
  check_parameter("depthwise_conv2d(): expected dilation", dilation, 1, kLargest);
  for (const auto& value : stride) {
    TORCH_CHECK(value == 1, "depthwise_conv2d(): expected stride to be 1 with padding='same', got ", stride);
  }
  // An odd number of zeros is one more below or on the right, as with conv2d.
  c10::SymDimVector both_sides, more(4, 0);
  for (const size_t axis : {0, 1}) {
    const c10::SymInt zeros = kernel_extent(weight, dilation, axis) - 1;
    both_sides.push_back(zeros / 2);
    more[3 - 2 * axis] = zeros % 2;
  }
  const bool is_even = more[1] == 0 && more[3] == 0;
  return at::depthwise_conv2d_symint(
      is_even ? input : at::constant_pad_nd_symint(input, more), weight, bias, stride, both_sides, dilation);
}

std::tuple<Tensor, Tensor, Tensor> depthwise_conv2d_backward_meta_symint(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  check_depthwise_conv2d_backward(grad_output, input, weight, stride, padding, dilation);
  // Allocate the small results first. After the large one they would use the rest of its block in the allocator, so
  // while they live the next large result would not fit, and each call would use other, colder memory.
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[1]) {
    grad_weight = at::empty_symint(weight.sym_sizes(), weight.options());
  }
  if (output_mask[2]) {
    grad_bias = at::empty_symint(weight.sym_sizes().slice(0, 1), weight.options());
  }
  if (output_mask[0]) {
    grad_input = at::empty_symint(input.sym_sizes(), input.options().memory_format(format_of_images(input)));
  }
  return {grad_input, grad_weight, grad_bias};
}

std::tuple<Tensor, Tensor, Tensor> depthwise_conv2d_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  auto results = depthwise_conv2d_backward_meta_symint(
      grad_output,
      input,
      weight,
      c10::fromIntArrayRefSlow(stride),
      c10::fromIntArrayRefSlow(padding),
      c10::fromIntArrayRefSlow(dilation),
      output_mask);
  auto& [grad_input, grad_weight, grad_bias] = results;
  if (grad_output.numel() == 0) {
    for (const Tensor& grad : {grad_input, grad_weight, grad_bias}) {
      if (grad.defined()) {
        grad.zero_();
      }
    }
    return results;
  }
  const auto g = make_geometry(input, weight, grad_output.sizes(), stride, padding, dilation);
  const auto device = input.device().type();
  const auto format = format_of_images(input);
  const Tensor dense_grads = batched(grad_output).contiguous(format);
  if (grad_input.defined() && grad_input.numel() > 0) {
    depthwise_conv2d_backward_input_stub(device, batched(grad_input), dense_grads, weight.contiguous(), g);
  }
  if (grad_weight.defined() || grad_bias.defined()) {
    depthwise_conv2d_backward_weight_stub(
        device, grad_weight, grad_bias, dense_grads, batched(input).contiguous(format), g);
  }
  return results;
}

// The backward is linear in grad_output and in each of input and weight, so its derivatives are convolutions and
// backwards again.
std::tuple<Tensor, Tensor, Tensor> _depthwise_conv2d_double_backward_symint(
    const std::optional<Tensor>& ggI_opt,
    const std::optional<Tensor>& ggW_opt,
    const std::optional<Tensor>& ggb_opt,
    const Tensor& gO,
    const Tensor& input,
    const Tensor& weight,
    SymIntArrayRef stride,
    SymIntArrayRef padding,
    SymIntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  const Tensor ggI = ggI_opt.value_or(Tensor());
  const Tensor ggW = ggW_opt.value_or(Tensor());
  const Tensor ggb = ggb_opt.value_or(Tensor());
  const auto plus = [](const Tensor& sum, const Tensor& term) { return sum.defined() ? sum.add(term) : term; };

  Tensor ggO, gI, gW;
  if (output_mask[0]) {
    if (ggI.defined()) {
      ggO = at::depthwise_conv2d_symint(ggI, weight, {}, stride, padding, dilation);
    }
    if (ggW.defined()) {
      ggO = plus(ggO, at::depthwise_conv2d_symint(input, ggW, {}, stride, padding, dilation));
    }
    if (ggb.defined()) {
      ggO = plus(ggO, ggb.unsqueeze(-1).unsqueeze(-1).expand_as(gO));
    }
  }
  if (output_mask[1] && ggW.defined()) {
    gI = std::get<0>(
        at::depthwise_conv2d_backward_symint(gO, input, ggW, stride, padding, dilation, {true, false, false}));
  }
  if (output_mask[2] && ggI.defined()) {
    gW = std::get<1>(
        at::depthwise_conv2d_backward_symint(gO, ggI, weight, stride, padding, dilation, {false, true, false}));
  }
  return {ggO, gI, gW};
}

} // namespace at::native
