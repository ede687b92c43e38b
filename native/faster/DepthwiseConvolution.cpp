// Convolutions with a group for each channel, by the kernels of native/. PyTorch's own kernels compute all others,
// those for which they are faster, and those with an error.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/Faster.h>
#include <ATen/native/DepthwiseConv2d.h> // of native/, so build both: NATIVE="native native/faster"

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_convolution_native.h>
#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/empty.h>
#endif

#include <algorithm>

namespace at::native {
namespace {

// Whether this process has a processor whose speed was measured.
bool is_measured() {
#ifdef __x86_64__
  const auto capability = get_cpu_capability();
  return capability == CPUCapability::AVX2 || capability == CPUCapability::AVX512;
#else
  return false;
#endif
}

// Whether a value of `values` is for each axis, or one for all, and all are from `least` to a bound without overflows.
bool are_valid(IntArrayRef values, int64_t axes, int64_t least) {
  constexpr int64_t most = 1 << 16;
  return (values.size() == 1 || static_cast<int64_t>(values.size()) == axes) &&
      std::all_of(values.begin(), values.end(), [&](int64_t value) { return value >= least && value <= most; });
}

bool is_dense(const Tensor& tensor, ScalarType type) {
  return tensor.layout() == kStrided && tensor.scalar_type() == type && tensor.numel() > 0;
}

// The arguments of a convolution that our kernels compute.
struct Depthwise {
  ConvBackend backend; // PyTorch's for these arguments. The results have its strides
  MemoryFormat format; // of images
  Tensor input;
  Tensor weight;
  DepthwiseConv2dGeometry g;
};

// The format of a result with images of this size. The other backends than oneDNN compute each group alone and
// concatenate the results, by which an image of one pixel becomes contiguous.
MemoryFormat format_of(const Depthwise& c, std::array<int64_t, 2> size) {
  return c.backend != ConvBackend::Mkldnn && size[0] * size[1] == 1 ? MemoryFormat::Contiguous : c.format;
}

// Images and weights in one dimension have a height of 1.
Tensor in_two_dimensions(const Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor;
}

Tensor in_dimensions_of(const Tensor& tensor, const Tensor& other) {
  return tensor.defined() && other.dim() == 3 ? tensor.squeeze(2) : tensor;
}

std::optional<DepthwiseConv2dGeometry>
geometry(const Tensor& input, const Tensor& weight, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) {
  const auto axes = weight.dim() - 2;
  if (!are_valid(stride, axes, 1) || !are_valid(padding, axes, 0) || !are_valid(dilation, axes, 1) ||
      !are_valid(weight.sizes().slice(2), axes, 1)) {
    return std::nullopt;
  }
  DepthwiseConv2dGeometry g{input.size(0), input.size(1), 1};
  for (const int64_t axis : {0, 1}) {
    const bool is_given = axis == 1 || axes == 2;
    const auto value = [&](IntArrayRef values, int64_t otherwise) {
      return !is_given ? otherwise : axis == 1 ? values.back() : values.front();
    };
    g.input[axis] = value(input.sizes().slice(2), 1);
    g.kernel[axis] = value(weight.sizes().slice(2), 1);
    g.stride[axis] = value(stride, 1);
    g.padding[axis] = value(padding, 0);
    g.dilation[axis] = value(dilation, 1);
    const auto left = g.input[axis] + 2 * g.padding[axis] - g.dilation[axis] * (g.kernel[axis] - 1) - 1;
    if (left < 0) {
      return std::nullopt;
    }
    g.output[axis] = left / g.stride[axis] + 1;
  }
  return g;
}

// Whether our kernels are at least as fast as those of the backend. Measured with the layers of torchvision's models,
// in batches of 1 to 8, on one thread and two of a Zen 4 (AVX512_BF16, 1 MB of L2 for each core), and in float with
// AVX2.
bool is_fast(const Depthwise& c, bool is_backward) {
  const auto& g = c.g;
  const auto type = c.input.scalar_type();
  const auto stride = std::max(g.stride[0], g.stride[1]);
  const bool is_large = g.kernel[0] * g.kernel[1] >= 25, is_dilated = std::max(g.dilation[0], g.dilation[1]) > 1;
  // Here PyTorch calls a kernel for each channel, or oneDNN has only plain loops: ours take a half to a hundredth.
  if (c.backend != ConvBackend::Mkldnn ||
      (is_backward && type != kHalf && (is_large || is_dilated || (type == kBFloat16 && stride > 1)))) {
    return true;
  }
  constexpr int64_t most_threads = 2;
  if (type == kHalf || at::get_num_threads() > most_threads || (!is_backward && (stride > 2 || is_dilated))) {
    return false;
  }
  const auto elements = c.input.numel() + g.batch * g.channels * g.output[0] * g.output[1];
  if (c.format == MemoryFormat::Contiguous) {
    // Ours computes the channels of a vector at a time, but very few channels row by row.
    return !is_backward || elements <= 5 << 16 || g.channels < 5 || g.channels >= 16;
  }
  // Pixels of more than fit a cache are read faster by oneDNN.
  return (type == kFloat && is_large) ||
      elements <= (type == kFloat && !(is_backward && stride > 1) ? 5 << 18 : 5 << 17);
}

std::optional<Depthwise> depthwise(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    bool is_backward) {
  const auto type = input.scalar_type();
  const auto dim = input.dim();
  if (groups < 2 || transposed || !is_faster_on() || !is_measured() || (dim != 3 && dim != 4) || weight.dim() != dim ||
      input.size(1) != groups || weight.size(1) != 1 || weight.size(0) != groups ||
      (type != kFloat && type != kBFloat16 && type != kHalf && type != kDouble) || !is_dense(input, type) ||
      !is_dense(weight, type) || !are_valid(output_padding, dim - 2, 0)) {
    return std::nullopt;
  }
  if (bias && bias->defined() && (bias->dim() != 1 || bias->size(0) != weight.size(0) || !is_dense(*bias, type))) {
    return std::nullopt;
  }
  // Who turns oneDNN off, or lets it round float, wants just that.
  const auto& context = globalContext();
  const auto precision = context.float32Precision(Float32Backend::MKLDNN, Float32Op::CONV);
  if (!context.userEnabledMkldnn() || precision == Float32Precision::BF16 || precision == Float32Precision::TF32) {
    return std::nullopt;
  }
  const auto g = geometry(input, weight, stride, padding, dilation);
  if (!g) {
    return std::nullopt;
  }
  const auto backend = select_conv_backend(
      input,
      weight,
      bias,
      c10::fromIntArrayRefSlow(stride),
      c10::fromIntArrayRefSlow(padding),
      c10::fromIntArrayRefSlow(dilation),
      transposed,
      c10::fromIntArrayRefSlow(output_padding),
      groups,
      std::nullopt);
  if (backend != ConvBackend::Mkldnn && backend != ConvBackend::Slow2d && backend != ConvBackend::SlowDilated2d) {
    return std::nullopt;
  }
  // As PyTorch, which takes no 3-D image for one in channels_last.
  const Tensor image = in_two_dimensions(dim == 3 ? input.contiguous() : input), kernel = in_two_dimensions(weight);
  const auto format = _determine_backend_memory_format(image, kernel, backend);
  Depthwise c{backend, format, image, kernel, *g};
  return is_fast(c, is_backward) ? std::optional(std::move(c)) : std::nullopt;
}

} // namespace

Tensor convolution_cpu(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    bool benchmark,
    bool deterministic,
    bool cudnn_enabled,
    bool allow_tf32) {
  const auto c = depthwise(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, false);
  if (!c) {
    return stock::_convolution(
        input,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        benchmark,
        deterministic,
        cudnn_enabled,
        allow_tf32);
  }
  const auto& g = c->g;
  const Tensor output = at::empty(
      {g.batch, weight.size(0), g.output[0], g.output[1]}, input.options().memory_format(format_of(*c, g.output)));
  depthwise_conv2d_stub(
      kCPU,
      output,
      c->input.contiguous(c->format),
      c->weight.contiguous(),
      bias && bias->defined() ? bias->contiguous() : Tensor(),
      g);
  return in_dimensions_of(output, input);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward_cpu(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    OptionalIntArrayRef bias_sizes,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  const auto c = depthwise(input, weight, {}, stride, padding, dilation, transposed, output_padding, groups, true);
  const Tensor grads = c && grad_output.dim() == input.dim() ? in_two_dimensions(grad_output) : Tensor();
  if (!grads.defined() || !is_dense(grads, input.scalar_type()) ||
      grads.sizes() != IntArrayRef({c->g.batch, weight.size(0), c->g.output[0], c->g.output[1]})) {
    return stock::convolution_backward(
        grad_output,
        input,
        weight,
        bias_sizes,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        output_mask);
  }
  // The small results first, see depthwise_conv2d_backward_meta_symint.
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[1]) {
    const auto format = c->backend == ConvBackend::Slow2d ? c->weight.suggest_memory_format() : c->format;
    grad_weight = at::empty(c->weight.sizes(), weight.options().memory_format(format));
  }
  if (output_mask[2]) {
    grad_bias = at::empty(weight.sizes().slice(0, 1), weight.options());
  }
  const Tensor dense_grads = grads.contiguous(c->format);
  if (output_mask[0]) {
    grad_input = at::empty(c->input.sizes(), input.options().memory_format(format_of(*c, c->g.input)));
    depthwise_conv2d_backward_input_stub(kCPU, grad_input, dense_grads, c->weight.contiguous(), c->g);
  }
  if (output_mask[1] || output_mask[2]) {
    depthwise_conv2d_backward_weight_stub(
        kCPU, grad_weight, grad_bias, dense_grads, c->input.contiguous(c->format), c->g);
  }
  return {in_dimensions_of(grad_input, input), in_dimensions_of(grad_weight, input), grad_bias};
}

} // namespace at::native
