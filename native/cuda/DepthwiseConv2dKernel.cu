#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/TensorAccessor.h>
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/cuda/DepthwiseConv2dStencil.cuh>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ceil_div.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/cuda/detail/KernelUtils.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

namespace at::native {
namespace {

constexpr int kThreads = 256;

// The number of sums of the weight's gradient that a thread keeps in registers: a 3 x 3 weight takes one pass over the
// images.
constexpr int kTapsAtOnce = 9;

// CUDA_KERNEL_LOOP_TYPE counts blockDim.x * gridDim.x in 32 bits.
int blocks_for(int64_t count) {
  return static_cast<int>(std::min<int64_t>(at::ceil_div<int64_t>(count, kThreads), int64_t(1) << 20));
}

template <typename index_t>
struct Pixel {
  index_t image;
  index_t channel;
  index_t y;
  index_t x;
};

// The images of a batch, in either memory format.
template <typename scalar_t, typename index_t>
using Images = GenericPackedTensorAccessor<scalar_t, 4, DefaultPtrTraits, index_t>;

// The pixel at this position in memory: adjacent threads have adjacent pixels.
template <typename scalar_t, typename index_t>
__device__ Pixel<index_t> pixel_at(const Images<scalar_t, index_t>& images, index_t i) {
  const index_t channels = images.size(1), height = images.size(2), width = images.size(3);
  if (images.stride(1) == 1) {
    return {i / channels / width / height, i % channels, i / channels / width % height, i / channels % width};
  }
  return {i / width / height / channels, i / width / height % channels, i / width % height, i % width};
}

template <typename scalar_t, typename index_t>
__device__ bool holds(const Images<scalar_t, index_t>& images, index_t y, index_t x) {
  return y >= 0 && y < images.size(2) && x >= 0 && x < images.size(3);
}

// The parameters of the convolution. For weights of size x size elements the compiler knows the loops' lengths, unless
// size is 0.
template <typename index_t, int size = 0>
struct Parameters {
  explicit Parameters(const DepthwiseConv2dGeometry& g)
      : multiplier(g.multiplier),
        kernel{static_cast<index_t>(g.kernel[0]), static_cast<index_t>(g.kernel[1])},
        stride{static_cast<index_t>(g.stride[0]), static_cast<index_t>(g.stride[1])},
        padding{static_cast<index_t>(g.padding[0]), static_cast<index_t>(g.padding[1])},
        dilation{static_cast<index_t>(g.dilation[0]), static_cast<index_t>(g.dilation[1])} {}

  __device__ index_t kernel_size(int axis) const {
    return size > 0 ? size : kernel[axis];
  }

  __device__ index_t taps() const {
    return kernel_size(0) * kernel_size(1);
  }

  // Where the first tap is for this output.
  __device__ index_t start(int axis, index_t output) const {
    return output * stride[axis] - padding[axis];
  }

  // The output that has this input at this tap; -1 if there is none.
  __device__ index_t output_of(int axis, index_t input, index_t tap) const {
    const index_t from = input + padding[axis] - tap * dilation[axis];
    if (from < 0 || stride[axis] == 1) {
      return from;
    }
    return from % stride[axis] == 0 ? from / stride[axis] : -1;
  }

  index_t multiplier;
  index_t kernel[2];
  index_t stride[2];
  index_t padding[2];
  index_t dilation[2];
};

// A thread for each output.
template <typename scalar_t, typename index_t>
__global__ void depthwise_conv2d_forward_kernel(
    index_t count,
    Images<scalar_t, index_t> output,
    Images<const scalar_t, index_t> input,
    const scalar_t* weight,
    const scalar_t* bias,
    Parameters<index_t> p) {
  using T = at::opmath_type<scalar_t>;
  CUDA_KERNEL_LOOP_TYPE(i, count, index_t) {
    const auto at = pixel_at(output, i);
    const auto plane = input[at.image][at.channel / p.multiplier];
    const scalar_t* taps = weight + at.channel * p.taps();
    T sum = bias ? static_cast<T>(bias[at.channel]) : T(0);
    for (index_t ky = 0; ky < p.kernel[0]; ++ky) {
      const index_t y = p.start(0, at.y) + ky * p.dilation[0];
      for (index_t kx = 0; kx < p.kernel[1]; ++kx) {
        const index_t x = p.start(1, at.x) + kx * p.dilation[1];
        if (holds(input, y, x)) {
          sum += static_cast<T>(taps[ky * p.kernel[1] + kx]) * static_cast<T>(plane[y][x]);
        }
      }
    }
    output[at.image][at.channel][at.y][at.x] = static_cast<scalar_t>(sum);
  }
}

// A thread for each input, which gathers from the outputs that it went into.
template <typename scalar_t, typename index_t, int size>
__global__ void depthwise_conv2d_grad_input_kernel(
    index_t count,
    Images<scalar_t, index_t> grad_input,
    Images<const scalar_t, index_t> grad_output,
    const scalar_t* weight,
    Parameters<index_t, size> p) {
  using T = at::opmath_type<scalar_t>;
  CUDA_KERNEL_LOOP_TYPE(i, count, index_t) {
    const auto at = pixel_at(grad_input, i);
    T sum = 0;
    for (index_t m = 0; m < p.multiplier; ++m) {
      const index_t channel = at.channel * p.multiplier + m;
      const auto plane = grad_output[at.image][channel];
      const scalar_t* taps = weight + channel * p.taps();
#pragma unroll
      for (index_t ky = 0; ky < p.kernel_size(0); ++ky) {
        const index_t y = p.output_of(0, at.y, ky);
#pragma unroll
        for (index_t kx = 0; kx < p.kernel_size(1); ++kx) {
          const index_t x = p.output_of(1, at.x, kx);
          if (holds(grad_output, y, x)) {
            sum += static_cast<T>(taps[ky * p.kernel_size(1) + kx]) * static_cast<T>(plane[y][x]);
          }
        }
      }
    }
    grad_input[at.image][at.channel][at.y][at.x] = static_cast<scalar_t>(sum);
  }
}

// Sums over a share of the outputs of all images, [shares, channels, taps]. threadIdx.x and blockIdx.x count channels,
// threadIdx.y and blockIdx.z outputs, blockIdx.y taps. Without atomic additions the order of each sum is fixed.
template <typename scalar_t, typename index_t>
__global__ void depthwise_conv2d_grad_weight_kernel(
    at::opmath_type<scalar_t>* partial,
    Images<const scalar_t, index_t> grad_output,
    Images<const scalar_t, index_t> input,
    Parameters<index_t> p) {
  using T = at::opmath_type<scalar_t>;
  __shared__ T shared[kTapsAtOnce][kThreads];
  const index_t channel = static_cast<index_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool has_channel = channel < grad_output.size(1);
  const index_t outputs = grad_output.size(0) * grad_output.size(2) * grad_output.size(3);
  for (index_t first = blockIdx.y * kTapsAtOnce; first < p.taps(); first += gridDim.y * kTapsAtOnce) {
    // The error of a float sum grows with its length, so it is made of pieces.
    T sums[kTapsAtOnce] = {}, piece[kTapsAtOnce] = {};
    int piece_length = 0;
    index_t y_of[kTapsAtOnce];
    index_t x_of[kTapsAtOnce];
#pragma unroll
    for (int t = 0; t < kTapsAtOnce; ++t) {
      const index_t tap = std::min(first + t, p.taps() - 1);
      y_of[t] = tap / p.kernel[1] * p.dilation[0];
      x_of[t] = tap % p.kernel[1] * p.dilation[1];
    }
    const int64_t begin = static_cast<int64_t>(blockIdx.z) * blockDim.y + threadIdx.y;
    const int64_t step = static_cast<int64_t>(gridDim.z) * blockDim.y;
    for (int64_t i = begin; i < outputs && has_channel; i += step) {
      const index_t output = i;
      const index_t x = output % grad_output.size(3);
      const index_t y = output / grad_output.size(3) % grad_output.size(2);
      const index_t image = output / grad_output.size(3) / grad_output.size(2);
      const T grad = grad_output[image][channel][y][x];
      const auto plane = input[image][channel / p.multiplier];
#pragma unroll
      for (int t = 0; t < kTapsAtOnce; ++t) {
        const index_t from_y = p.start(0, y) + y_of[t];
        const index_t from_x = p.start(1, x) + x_of[t];
        if (first + t < p.taps() && holds(input, from_y, from_x)) {
          piece[t] += grad * static_cast<T>(plane[from_y][from_x]);
        }
      }
      if (++piece_length == 128 || i + step >= outputs) {
#pragma unroll
        for (int t = 0; t < kTapsAtOnce; ++t) {
          sums[t] += piece[t];
          piece[t] = 0;
        }
        piece_length = 0;
      }
    }
    const int own = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int t = 0; t < kTapsAtOnce; ++t) {
      shared[t][own] = sums[t];
    }
    __syncthreads();
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) {
#pragma unroll
        for (int t = 0; t < kTapsAtOnce; ++t) {
          shared[t][own] += shared[t][own + half * blockDim.x];
        }
      }
      __syncthreads();
    }
    // Since the last barrier, each thread has read only what it overwrites for the next taps.
    if (threadIdx.y == 0 && has_channel) {
      for (int t = 0; t < kTapsAtOnce && first + t < p.taps(); ++t) {
        partial[(blockIdx.z * static_cast<int64_t>(grad_output.size(1)) + channel) * p.taps() + first + t] =
            shared[t][own];
      }
    }
  }
}

// Whether every index and every place in the padded images fits into 32 bits.
bool fits_int(const DepthwiseConv2dGeometry& g, const TensorBase& images, const TensorBase& outputs) {
  const auto padded = [&](int axis) { return g.input[axis] + 2 * g.padding[axis]; };
  const auto most = std::max(
      {images.numel(),
       outputs.numel(),
       g.output_channels() * g.kernel[0] * g.kernel[1],
       padded(0),
       padded(1),
       g.stride[0],
       g.stride[1],
       g.dilation[0],
       g.dilation[1]});
  return most <= std::numeric_limits<int>::max() / 2;
}

// Calls f with the type of indices.
template <typename F>
void dispatch(const DepthwiseConv2dGeometry& g, const TensorBase& images, const TensorBase& outputs, const F& f) {
  if (fits_int(g, images, outputs)) {
    f(int());
  } else {
    f(int64_t());
  }
}

// Launches a stencil if there is one for this convolution, and returns whether it did: from images to outputs or, with
// the weight turned, from gradients of outputs to those of images. Doubles, which few models use, have none.
template <typename scalar_t>
bool convolve_by_stencil(
    const TensorBase& to,
    const TensorBase& from,
    const TensorBase& weight,
    const TensorBase& bias,
    const DepthwiseConv2dGeometry& g,
    bool is_turned) {
  using namespace depthwise;
  const auto is = [](const std::array<int64_t, 2>& pair, int64_t value) {
    return pair[0] == value && pair[1] == value;
  };
  const auto kernel = g.kernel[0], step = g.stride[0];
  const bool is_usual = is(g.kernel, kernel) && is(g.padding, kernel / 2) && is(g.dilation, 1) && is(g.stride, step);
  if (!is_usual || g.multiplier > 1 || (is_turned && step > 1) || !fits_int(g, from, to)) {
    return false;
  }
  const auto size = [](const TensorBase& x, int dim) { return static_cast<int>(x.size(dim)); };
  const Stencil s{size(to, 0), size(to, 1), size(from, 2), size(from, 3), size(to, 2), size(to, 3), is_turned};
  auto* output = to.mutable_data_ptr<scalar_t>();
  const auto* input = from.const_data_ptr<scalar_t>();
  const auto* taps = weight.const_data_ptr<scalar_t>();
  const auto* start = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
  const auto stream = at::cuda::getCurrentCUDAStream();
  const auto launch = [&](auto size_of_weight, auto step_of_outputs) {
    constexpr int size = decltype(size_of_weight)::value, stride = decltype(step_of_outputs)::value;
    constexpr int lanes = kLanes<scalar_t>;
    if (to.is_contiguous() && from.is_contiguous()) {
      const auto count = to.numel() / s.out_width * at::ceil_div(s.out_width, kColumns);
      const bool has_vectors = is_aligned<kColumns>(output, s.out_width) && is_aligned<kColumns>(input, s.width);
      depthwise_conv2d_rows_kernel<scalar_t, size, stride>
          <<<blocks_for(count), kThreads, 0, stream>>>(count, output, input, taps, start, s, has_vectors);
    } else if (is_aligned<lanes>(output, s.channels) && is_aligned<lanes>(input, s.channels)) {
      const int vectors = s.channels / lanes, groups = at::ceil_div(vectors, kMostVectors);
      const int columns = at::ceil_div(vectors, groups), rows = kThreads / columns;
      // A block loads its weights once, so there are only as many as keep the GPU busy.
      const int most = at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 16 / groups + 1;
      const int wanted = at::ceil_div(s.batch * s.out_height * at::ceil_div(s.out_width, kPixels<size>), rows);
      const dim3 grid(groups, std::min({wanted, most, 65535})), block(columns, rows);
      depthwise_conv2d_pixels_kernel<scalar_t, size, stride><<<grid, block, 0, stream>>>(output, input, taps, start, s);
    } else {
      return false;
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return true;
  };
  if constexpr (!std::is_same_v<scalar_t, double>) {
    const auto by_stride = [&](auto size) {
      return step == 1 ? launch(size, std::integral_constant<int, 1>())
          : step == 2  ? launch(size, std::integral_constant<int, 2>())
                       : false;
    };
    return kernel == 3 ? by_stride(std::integral_constant<int, 3>())
        : kernel == 5  ? by_stride(std::integral_constant<int, 5>())
        : kernel == 7  ? by_stride(std::integral_constant<int, 7>())
                       : false;
  }
  return false;
}

void depthwise_conv2d_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const TensorBase& bias,
    const DepthwiseConv2dGeometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_cuda", [&] {
    if (convolve_by_stencil<scalar_t>(output, input, weight, bias, g, /*is_turned=*/false)) {
      return;
    }
    dispatch(g, input, output, [&](auto index) {
      using index_t = decltype(index);
      depthwise_conv2d_forward_kernel<<<blocks_for(output.numel()), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
          static_cast<index_t>(output.numel()),
          output.generic_packed_accessor<scalar_t, 4, DefaultPtrTraits, index_t>(),
          input.generic_packed_accessor<const scalar_t, 4, DefaultPtrTraits, index_t>(),
          weight.const_data_ptr<scalar_t>(),
          bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr,
          Parameters<index_t>(g));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

void depthwise_conv2d_backward_input_kernel(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& weight,
    const DepthwiseConv2dGeometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      kHalf, kBFloat16, grad_output.scalar_type(), "depthwise_conv2d_backward_input_cuda", [&] {
        if (convolve_by_stencil<scalar_t>(grad_input, grad_output, weight, {}, g, /*is_turned=*/true)) {
          return;
        }
        dispatch(g, grad_input, grad_output, [&](auto index) {
          using index_t = decltype(index);
          const auto launch = [&](auto size) {
            depthwise_conv2d_grad_input_kernel<<<
                blocks_for(grad_input.numel()),
                kThreads,
                0,
                at::cuda::getCurrentCUDAStream()>>>(
                static_cast<index_t>(grad_input.numel()),
                grad_input.generic_packed_accessor<scalar_t, 4, DefaultPtrTraits, index_t>(),
                grad_output.generic_packed_accessor<const scalar_t, 4, DefaultPtrTraits, index_t>(),
                weight.const_data_ptr<scalar_t>(),
                Parameters<index_t, decltype(size)::value>(g));
            C10_CUDA_KERNEL_LAUNCH_CHECK();
          };
          if constexpr (std::is_same_v<index_t, int>) {
            // The weights of layers with stride 2.
            if (g.kernel == std::array<int64_t, 2>{3, 3}) {
              return launch(std::integral_constant<int, 3>());
            }
            if (g.kernel == std::array<int64_t, 2>{5, 5}) {
              return launch(std::integral_constant<int, 5>());
            }
          }
          launch(std::integral_constant<int, 0>());
        });
      });
}

// Into how many shares the outputs are split: enough to keep the GPU busy, and each with work for its threads.
int64_t count_shares(int64_t outputs, int64_t blocks, int64_t rows) {
  const int64_t wanted = at::ceil_div<int64_t>(at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 8, blocks);
  return std::clamp<int64_t>(outputs / (rows * 16), 1, std::min<int64_t>(wanted, 65535));
}

Tensor weight_gradient(const TensorBase& grad_output, const TensorBase& input, const DepthwiseConv2dGeometry& g) {
  const int64_t channels = g.output_channels();
  const int64_t taps = g.kernel[0] * g.kernel[1];
  // Warps read adjacent memory: channels or columns.
  const int64_t lanes = grad_output.suggest_memory_format() == MemoryFormat::ChannelsLast ? at::cuda::warp_size() : 1;
  const int64_t rows = kThreads / lanes;
  const int64_t groups = std::min<int64_t>(at::ceil_div<int64_t>(taps, kTapsAtOnce), 65535);
  const int64_t channel_blocks = at::ceil_div(channels, lanes);
  const int64_t shares = count_shares(grad_output.numel() / channels, channel_blocks * groups, rows);
  const Tensor partial(
      at::detail::empty_cuda(
          {shares, channels, taps}, grad_output.options().dtype(toOpMathType(grad_output.scalar_type()))));
  AT_DISPATCH_FLOATING_TYPES_AND2(
      kHalf, kBFloat16, grad_output.scalar_type(), "depthwise_conv2d_backward_weight_cuda", [&] {
        dispatch(g, input, grad_output, [&](auto index) {
          using index_t = decltype(index);
          const dim3 grid(channel_blocks, groups, shares), block(lanes, rows);
          depthwise_conv2d_grad_weight_kernel<scalar_t><<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
              partial.mutable_data_ptr<at::opmath_type<scalar_t>>(),
              grad_output.generic_packed_accessor<const scalar_t, 4, DefaultPtrTraits, index_t>(),
              input.generic_packed_accessor<const scalar_t, 4, DefaultPtrTraits, index_t>(),
              Parameters<index_t>(g));
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        });
      });
  return partial.sum(0);
}

void depthwise_conv2d_backward_weight_kernel(
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input,
    const DepthwiseConv2dGeometry& g) {
  if (grad_weight.defined()) {
    Tensor(grad_weight).copy_(weight_gradient(grad_output, input, g).view(grad_weight.sizes()));
  }
  if (grad_bias.defined()) {
    Tensor(grad_bias).copy_(Tensor(grad_output).sum({0, 2, 3}));
  }
}

} // namespace

REGISTER_CUDA_DISPATCH(depthwise_conv2d_stub, &depthwise_conv2d_kernel)
REGISTER_CUDA_DISPATCH(depthwise_conv2d_backward_input_stub, &depthwise_conv2d_backward_input_kernel)
REGISTER_CUDA_DISPATCH(depthwise_conv2d_backward_weight_stub, &depthwise_conv2d_backward_weight_kernel)

} // namespace at::native
