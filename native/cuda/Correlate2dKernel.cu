#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/core/TensorAccessor.h>
#include <ATen/native/Correlate2d.h>

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ceil_div.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/cuda/detail/KernelUtils.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

namespace at::native {
namespace {

constexpr int kThreads = 256;

// CUDA_KERNEL_LOOP_TYPE counts blockDim.x * gridDim.x in 32 bits.
int blocks_for(int64_t count) {
  return static_cast<int>(std::min<int64_t>(count, int64_t(1) << 20));
}

// [K, N, H, W]; of an input, K may be 1: all kernels have the same images.
template <typename T>
using Images = PackedTensorAccessor64<const T, 4>;

// A thread for each element of the output.
template <typename T>
__global__ void correlate2d_forward_kernel(
    int64_t count,
    PackedTensorAccessor64<T, 4> output,
    Images<T> input,
    PackedTensorAccessor64<const T, 3> kernel,
    const bool* chosen) {
  CUDA_KERNEL_LOOP_TYPE(i, count, int64_t) {
    const int64_t x = i % output.size(3);
    const int64_t y = i / output.size(3) % output.size(2);
    const int64_t image = i / output.size(3) / output.size(2);
    if (chosen && !chosen[image]) {
      continue;
    }
    const int64_t k = image / output.size(1), n = image % output.size(1);
    const auto taps = kernel[k];
    const auto from = input[k % input.size(0)][n];
    T sum = 0;
    for (int64_t a = 0; a < taps.size(0); ++a) {
      const auto row = from[y + a];
      for (int64_t b = 0; b < taps.size(1); ++b) {
        sum += row[x + b] * taps[a][b];
      }
    }
    output[k][n][y][x] = sum;
  }
}

// Sums over a share of the pixels, [shares, K, kernel height, kernel width], with a block for each. Without atomic
// additions the order of the sums is fixed.
template <typename T>
__global__ void correlate2d_tap_kernel(
    int64_t count,
    T* partial,
    Images<T> input,
    Images<T> grad,
    const bool* chosen,
    int64_t kernel_height,
    int64_t kernel_width,
    int64_t step) {
  alignas(sizeof(T)) __shared__ char shared[sizeof(T) * kThreads];
  T* sums = reinterpret_cast<T*>(shared);
  const int64_t taps = grad.size(0) * kernel_height * kernel_width;
  const int64_t pixels = grad.size(1) * grad.size(2) * grad.size(3);
  for (int64_t place = blockIdx.x; place < count; place += gridDim.x) {
    const int64_t tap = place % taps;
    const int64_t b = tap % kernel_width;
    const int64_t a = tap / kernel_width % kernel_height;
    const int64_t k = tap / kernel_width / kernel_height;
    const bool is_chosen = !chosen || chosen[k];
    // The error of a long sum grows with its length, so it is made of pieces.
    T sum = 0, piece = 0;
    int piece_length = 0;
    for (int64_t i = place / taps * kThreads + threadIdx.x; is_chosen && i < pixels; i += step) {
      const int64_t x = i % grad.size(3);
      const int64_t y = i / grad.size(3) % grad.size(2);
      const int64_t n = i / grad.size(3) / grad.size(2);
      piece += input[k % input.size(0)][n][y + a][x + b] * grad[k][n][y][x];
      if (++piece_length == 128) {
        sum += piece;
        piece = 0;
        piece_length = 0;
      }
    }
    sums[threadIdx.x] = sum + piece;
    __syncthreads();
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        sums[threadIdx.x] += sums[threadIdx.x + half];
      }
      __syncthreads();
    }
    // The next sum is written after this one is read: by the same thread, the first.
    if (threadIdx.x == 0 && is_chosen) {
      partial[place] = sums[0];
    }
  }
}

const bool* data_of(const TensorBase& chosen) {
  return chosen.defined() ? chosen.const_data_ptr<bool>() : nullptr;
}

void correlate2d_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& kernel,
    const TensorBase& chosen) {
  AT_DISPATCH_V2(
      input.scalar_type(),
      "correlate2d_cuda",
      AT_WRAP([&] {
        correlate2d_forward_kernel<scalar_t>
            <<<blocks_for(at::ceil_div<int64_t>(output.numel(), kThreads)),
               kThreads,
               0,
               at::cuda::getCurrentCUDAStream()>>>(
                output.numel(),
                output.packed_accessor64<scalar_t, 4>(),
                input.packed_accessor64<const scalar_t, 4>(),
                kernel.packed_accessor64<const scalar_t, 3>(),
                data_of(chosen));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX));
}

void correlate2d_kernel_grad_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& grad,
    const TensorBase& chosen) {
  // Enough blocks to keep the GPU busy, and some pixels for each of their threads.
  const int64_t taps = output.numel();
  const int64_t pixels = grad.numel() / grad.size(0);
  const int64_t wanted = at::ceil_div<int64_t>(at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 8, taps);
  const int64_t shares = std::clamp<int64_t>(pixels / (kThreads * 16), 1, wanted);
  const Tensor all = Tensor(output).unsqueeze(0);
  const Tensor partial = shares == 1
      ? all
      : Tensor(at::detail::empty_cuda({shares, output.size(0), output.size(1), output.size(2)}, output.options()));
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "correlate2d_kernel_grad_cuda", [&] {
    correlate2d_tap_kernel<scalar_t><<<blocks_for(partial.numel()), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        partial.numel(),
        partial.mutable_data_ptr<scalar_t>(),
        input.packed_accessor64<const scalar_t, 4>(),
        grad.packed_accessor64<const scalar_t, 4>(),
        data_of(chosen),
        output.size(1),
        output.size(2),
        shares * kThreads);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  if (shares > 1) {
    const Tensor sums = partial.sum(0);
    all[0].copy_(chosen.defined() ? sums.where(Tensor(chosen).view({-1, 1, 1}), all[0]) : sums);
  }
}

} // namespace

REGISTER_CUDA_DISPATCH(correlate2d_stub, &correlate2d_kernel)
REGISTER_CUDA_DISPATCH(correlate2d_kernel_grad_stub, &correlate2d_kernel_grad_kernel)

} // namespace at::native
