#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/OlderReleases.h>
#include <c10/util/safe_numerics.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_depthwise_conv2d_double_backward_native.h>
#include <ATen/ops/depthwise_conv2d.h>
#include <ATen/ops/depthwise_conv2d_backward.h>
#include <ATen/ops/depthwise_conv2d_backward_native.h>
#include <ATen/ops/depthwise_conv2d_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#endif

namespace at::native {

DEFINE_DISPATCH(depthwise_conv2d_stub);
DEFINE_DISPATCH(depthwise_conv2d_backward_input_stub);
DEFINE_DISPATCH(depthwise_conv2d_backward_weight_stub);

namespace {

constexpr std::array<const char*, 2> axis_names = {"height", "width"};

// A parameter of one number holds for both axes.
std::array<int64_t, 2> pair(const char* op, const char* name, IntArrayRef values, int64_t least) {
  TORCH_CHECK(
      values.size() == 1 || values.size() == 2, op, "(): expected ", name, " to be one or two integers, got ", values);
  for (const auto value : values) {
    TORCH_CHECK(value >= least, op, "(): expected ", name, " to be at least ", least, ", got ", values);
  }
  return {values.front(), values.back()};
}

int64_t output_size(const char* op, const DepthwiseConv2dGeometry& g, size_t axis) {
  int64_t padded = 0;
  int64_t extent = 0;
  const bool overflows = c10::mul_overflows(g.padding[axis], int64_t{2}, &padded) ||
      add_overflows(padded, g.input[axis], &padded) ||
      c10::mul_overflows(g.dilation[axis], g.kernel[axis] - 1, &extent) || add_overflows(extent, int64_t{1}, &extent);
  TORCH_CHECK(
      !overflows,
      op,
      "(): expected padding and dilation to give sizes of 64 bits, got padding ",
      g.padding[axis],
      " and dilation ",
      g.dilation[axis],
      " for the ",
      axis_names[axis]);
  TORCH_CHECK(
      padded >= extent,
      op,
      "(): expected weight to be no larger than the padded input, got a ",
      axis_names[axis],
      " of ",
      extent,
      " (dilation included) for an input of ",
      padded,
      " (padding included)");
  return (padded - extent) / g.stride[axis] + 1;
}

void check_companion(const char* op, const char* name, const Tensor& tensor, const Tensor& input) {
  TORCH_CHECK(
      tensor.scalar_type() == input.scalar_type(),
      op,
      "(): expected ",
      name,
      " to have the dtype of input, ",
      input.scalar_type(),
      ", got ",
      tensor.scalar_type());
  TORCH_CHECK(
      tensor.device() == input.device(),
      op,
      "(): expected ",
      name,
      " to be on the device of input, ",
      input.device(),
      ", got ",
      tensor.device());
}

// Checks everything but the bias and the gradient.
DepthwiseConv2dGeometry make_geometry(
    const char* op,
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation) {
  TORCH_CHECK(
      input.dim() == 3 || input.dim() == 4,
      op,
      "(): expected input to be 4-D [N, C, H, W] or 3-D [C, H, W], got ",
      input.sizes());
  TORCH_CHECK(
      weight.dim() == 4 && weight.size(1) == 1 && weight.numel() > 0,
      op,
      "(): expected weight to be 4-D [C * multiplier, 1, kH, kW] and not empty, got ",
      weight.sizes());
  const auto channels = input.size(-3);
  TORCH_CHECK(
      channels > 0 && weight.size(0) % channels == 0,
      op,
      "(): expected the first size of weight to be a multiple of input's ",
      channels,
      " channels, got ",
      weight.sizes());
  TORCH_CHECK(
      isFloatingType(input.scalar_type()) && !isFloat8Type(input.scalar_type()),
      op,
      "(): expected input to be double, float, half or bfloat16, got ",
      input.scalar_type());
  check_companion(op, "weight", weight, input);
  DepthwiseConv2dGeometry g{
      input.dim() == 4 ? input.size(0) : 1,
      channels,
      weight.size(0) / channels,
      {input.size(-2), input.size(-1)},
      {},
      {weight.size(2), weight.size(3)},
      pair(op, "stride", stride, 1),
      pair(op, "padding", padding, 0),
      pair(op, "dilation", dilation, 1)};
  g.output = {output_size(op, g, 0), output_size(op, g, 1)};
  return g;
}

Tensor batched(const Tensor& image) {
  return image.dim() == 3 ? image.unsqueeze(0) : image;
}

Tensor like(const Tensor& image, const Tensor& result) {
  return image.dim() == 3 ? result.squeeze(0) : result;
}

} // namespace

Tensor depthwise_conv2d(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias_opt,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation) {
  constexpr auto op = "depthwise_conv2d";
  const auto g = make_geometry(op, input, weight, stride, padding, dilation);
  const Tensor bias = bias_opt.value_or(Tensor());
  if (bias.defined()) {
    TORCH_CHECK(
        bias.dim() == 1 && bias.size(0) == g.output_channels(),
        op,
        "(): expected bias to be 1-D with ",
        g.output_channels(),
        " elements, got ",
        bias.sizes());
    check_companion(op, "bias", bias, input);
  }
  const Tensor images = batched(input);
  const auto format = images.suggest_memory_format();
  const Tensor output =
      at::empty({g.batch, g.output_channels(), g.output[0], g.output[1]}, images.options().memory_format(format));
  if (output.numel() > 0) {
    depthwise_conv2d_stub(
        input.device().type(),
        output,
        images.contiguous(format),
        weight.contiguous(),
        bias.defined() ? bias.contiguous() : bias,
        g);
  }
  return like(input, output);
}

std::tuple<Tensor, Tensor, Tensor> depthwise_conv2d_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    std::array<bool, 3> output_mask) {
  constexpr auto op = "depthwise_conv2d_backward";
  const auto g = make_geometry(op, input, weight, stride, padding, dilation);
  const Tensor images = batched(input);
  const Tensor grads = batched(grad_output);
  TORCH_CHECK(
      grad_output.dim() == input.dim() &&
          grads.sizes() == IntArrayRef({g.batch, g.output_channels(), g.output[0], g.output[1]}),
      op,
      "(): expected grad_output to have the sizes of the result, ",
      IntArrayRef({g.batch, g.output_channels(), g.output[0], g.output[1]}).slice(4 - input.dim()),
      ", got ",
      grad_output.sizes());
  check_companion(op, "grad_output", grad_output, input);

  const auto format = images.suggest_memory_format();
  const Tensor dense_grads = grads.contiguous(format);
  Tensor grad_input, grad_weight, grad_bias;
  // The small results first. Behind the large one they would lie in the rest of the block that the allocator took for
  // it, and while they live, the next large one finds no room there: each call's would be in other, colder memory.
  const auto make = grads.numel() > 0 ? [](IntArrayRef sizes, const TensorOptions& o) { return at::empty(sizes, o); }
                                      : [](IntArrayRef sizes, const TensorOptions& o) { return at::zeros(sizes, o); };
  if (output_mask[1]) {
    grad_weight = make(weight.sizes(), weight.options());
  }
  if (output_mask[2]) {
    grad_bias = make({g.output_channels()}, weight.options());
  }
  if (output_mask[0]) {
    grad_input = at::empty(images.sizes(), images.options().memory_format(format));
    if (grad_input.numel() > 0) {
      depthwise_conv2d_backward_input_stub(input.device().type(), grad_input, dense_grads, weight.contiguous(), g);
    }
    grad_input = like(input, grad_input);
  }
  if (grads.numel() > 0 && (output_mask[1] || output_mask[2])) {
    depthwise_conv2d_backward_weight_stub(
        input.device().type(), grad_weight, grad_bias, dense_grads, images.contiguous(format), g);
  }
  return {grad_input, grad_weight, grad_bias};
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
