#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/DepthwiseConv2d.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/TensorBase.h>

namespace at::native {
namespace {

using Geometry = DepthwiseConv2dGeometry;

// Where the elements of an image tensor are, whatever its memory format.
struct Place {
  std::array<int64_t, 4> strides;

  explicit Place(const TensorBase& images)
      : strides{images.stride(0), images.stride(1), images.stride(2), images.stride(3)} {}

  int64_t operator()(int64_t n, int64_t c, int64_t y, int64_t x) const {
    return n * strides[0] + c * strides[1] + y * strides[2] + x * strides[3];
  }
};

// Calls f(ky, kx, iy, ix) for every tap of the output element whose input element is inside.
template <typename F>
void for_each_tap(const Geometry& g, int64_t oy, int64_t ox, const F& f) {
  for (int64_t ky = 0; ky < g.kernel[0]; ++ky) {
    const auto iy = oy * g.stride[0] + ky * g.dilation[0] - g.padding[0];
    for (int64_t kx = 0; kx < g.kernel[1]; ++kx) {
      const auto ix = ox * g.stride[1] + kx * g.dilation[1] - g.padding[1];
      if (iy >= 0 && iy < g.input[0] && ix >= 0 && ix < g.input[1]) {
        f(ky * g.kernel[1] + kx, iy, ix);
      }
    }
  }
}

template <typename scalar_t>
void forward(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const TensorBase& bias,
    const Geometry& g) {
  using acc_t = at::opmath_type<scalar_t>;
  auto* out = output.mutable_data_ptr<scalar_t>();
  const auto* in = input.const_data_ptr<scalar_t>();
  const auto* w = weight.const_data_ptr<scalar_t>();
  const auto* b = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
  const Place to(output), from(input);
  at::parallel_for(0, g.batch * g.output_channels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto n = i / g.output_channels(), c = i % g.output_channels();
      for (int64_t oy = 0; oy < g.output[0]; ++oy) {
        for (int64_t ox = 0; ox < g.output[1]; ++ox) {
          acc_t sum = b ? static_cast<acc_t>(b[c]) : acc_t(0);
          for_each_tap(g, oy, ox, [&](int64_t k, int64_t iy, int64_t ix) {
            sum += static_cast<acc_t>(w[c * g.kernel[0] * g.kernel[1] + k]) *
                static_cast<acc_t>(in[from(n, c / g.multiplier, iy, ix)]);
          });
          out[to(n, c, oy, ox)] = static_cast<scalar_t>(sum);
        }
      }
    }
  });
}

template <typename scalar_t>
void backward_input(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& weight,
    const Geometry& g) {
  using acc_t = at::opmath_type<scalar_t>;
  auto* out = grad_input.mutable_data_ptr<scalar_t>();
  const auto* grad = grad_output.const_data_ptr<scalar_t>();
  const auto* w = weight.const_data_ptr<scalar_t>();
  const Place to(grad_input), from(grad_output);
  at::parallel_for(0, g.batch * g.channels, 1, [&](int64_t begin, int64_t end) {
    std::vector<acc_t> sums(g.input[0] * g.input[1]);
    for (int64_t i = begin; i < end; ++i) {
      const auto n = i / g.channels, c = i % g.channels;
      std::fill(sums.begin(), sums.end(), acc_t(0));
      for (int64_t oc = c * g.multiplier; oc < (c + 1) * g.multiplier; ++oc) {
        for (int64_t oy = 0; oy < g.output[0]; ++oy) {
          for (int64_t ox = 0; ox < g.output[1]; ++ox) {
            const auto d = static_cast<acc_t>(grad[from(n, oc, oy, ox)]);
            for_each_tap(g, oy, ox, [&](int64_t k, int64_t iy, int64_t ix) {
              sums[iy * g.input[1] + ix] += d * static_cast<acc_t>(w[oc * g.kernel[0] * g.kernel[1] + k]);
            });
          }
        }
      }
      for (int64_t iy = 0; iy < g.input[0]; ++iy) {
        for (int64_t ix = 0; ix < g.input[1]; ++ix) {
          out[to(n, c, iy, ix)] = static_cast<scalar_t>(sums[iy * g.input[1] + ix]);
        }
      }
    }
  });
}

template <typename scalar_t>
void backward_weight(
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input,
    const Geometry& g) {
  using acc_t = at::opmath_type<scalar_t>;
  const auto* grad = grad_output.const_data_ptr<scalar_t>();
  const auto* in = input.const_data_ptr<scalar_t>();
  auto* gw = grad_weight.defined() ? grad_weight.mutable_data_ptr<scalar_t>() : nullptr;
  auto* gb = grad_bias.defined() ? grad_bias.mutable_data_ptr<scalar_t>() : nullptr;
  const Place at_grad(grad_output), at_input(input);
  const auto taps = g.kernel[0] * g.kernel[1];
  at::parallel_for(0, g.output_channels(), 1, [&](int64_t begin, int64_t end) {
    std::vector<acc_t> sums(taps);
    for (int64_t c = begin; c < end; ++c) {
      std::fill(sums.begin(), sums.end(), acc_t(0));
      acc_t total = 0;
      for (int64_t n = 0; n < g.batch; ++n) {
        for (int64_t oy = 0; oy < g.output[0]; ++oy) {
          for (int64_t ox = 0; ox < g.output[1]; ++ox) {
            const auto d = static_cast<acc_t>(grad[at_grad(n, c, oy, ox)]);
            total += d;
            for_each_tap(g, oy, ox, [&](int64_t k, int64_t iy, int64_t ix) {
              sums[k] += d * static_cast<acc_t>(in[at_input(n, c / g.multiplier, iy, ix)]);
            });
          }
        }
      }
      if (gw) {
        std::transform(sums.begin(), sums.end(), gw + c * taps, [](acc_t s) { return static_cast<scalar_t>(s); });
      }
      if (gb) {
        gb[c] = static_cast<scalar_t>(total);
      }
    }
  });
}

void forward_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const TensorBase& bias,
    const Geometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_cpu", [&] {
    forward<scalar_t>(output, input, weight, bias, g);
  });
}

void backward_input_kernel(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& weight,
    const Geometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, weight.scalar_type(), "depthwise_conv2d_backward_input_cpu", [&] {
    backward_input<scalar_t>(grad_input, grad_output, weight, g);
  });
}

void backward_weight_kernel(
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input,
    const Geometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_backward_weight_cpu", [&] {
    backward_weight<scalar_t>(grad_weight, grad_bias, grad_output, input, g);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_stub, &forward_kernel)
ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_input_stub, &backward_input_kernel)
ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_weight_stub, &backward_weight_kernel)

} // namespace at::native
