#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/Correlate2d.h>

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ceil_div.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/detail/KernelUtils.h>

#include <algorithm>

namespace at::native {
namespace {

constexpr int threads = 256;

// CUDA_KERNEL_LOOP_TYPE counts blockDim.x * gridDim.x in 32 bits.
int blocks_for(int64_t count) {
  return static_cast<int>(std::min<int64_t>(count, int64_t(1) << 20));
}

struct Sizes {
  Sizes(const TensorBase& output, const TensorBase& input, const TensorBase& kernel)
      : images(output.size(1)),
        height(output.size(2)),
        width(output.size(3)),
        input_height(input.size(2)),
        input_width(input.size(3)),
        kernel_height(kernel.size(1)),
        kernel_width(kernel.size(2)) {}

  // Of each kernel.
  int64_t images;
  int64_t height;
  int64_t width;
  int64_t input_height;
  int64_t input_width;
  int64_t kernel_height;
  int64_t kernel_width;
};

// A thread for each element of the output.
template <typename T>
__global__ void correlate2d_forward_kernel(int64_t count, T* output, const T* input, const T* kernel, Sizes s) {
  CUDA_KERNEL_LOOP_TYPE(i, count, int64_t) {
    const int64_t x = i % s.width;
    const int64_t y = i / s.width % s.height;
    const int64_t image = i / s.width / s.height;
    const T* taps = kernel + image / s.images * s.kernel_height * s.kernel_width;
    T sum = 0;
    for (int64_t a = 0; a < s.kernel_height; ++a) {
      const T* from = input + (image * s.input_height + y + a) * s.input_width + x;
      for (int64_t b = 0; b < s.kernel_width; ++b) {
        sum += from[b] * taps[a * s.kernel_width + b];
      }
    }
    output[i] = sum;
  }
}

// A block for each element of each kernel. Without atomic additions the order of the sum is fixed.
template <typename T>
__global__ void correlate2d_tap_kernel(int64_t count, T* output, const T* input, const T* grad, Sizes s) {
  alignas(sizeof(T)) __shared__ char shared[sizeof(T) * threads];
  T* sums = reinterpret_cast<T*>(shared);
  const int64_t pixels = s.images * s.height * s.width;
  for (int64_t tap = blockIdx.x; tap < count; tap += gridDim.x) {
    const int64_t b = tap % s.kernel_width;
    const int64_t a = tap / s.kernel_width % s.kernel_height;
    const int64_t k = tap / s.kernel_width / s.kernel_height;
    T sum = 0;
    for (int64_t i = threadIdx.x; i < pixels; i += threads) {
      const int64_t x = i % s.width;
      const int64_t y = i / s.width % s.height;
      const int64_t image = k * s.images + i / s.width / s.height;
      sum += input[(image * s.input_height + y + a) * s.input_width + x + b] * grad[k * pixels + i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = threads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        sums[threadIdx.x] += sums[threadIdx.x + half];
      }
      __syncthreads();
    }
    // The next sum is written after this one is read: by the same thread, the first.
    if (threadIdx.x == 0) {
      output[tap] = sums[0];
    }
  }
}

void correlate2d_kernel(const TensorBase& output, const TensorBase& input, const TensorBase& kernel) {
  AT_DISPATCH_V2(
      input.scalar_type(),
      "correlate2d_cuda",
      AT_WRAP([&] {
        correlate2d_forward_kernel<scalar_t>
            <<<blocks_for(at::ceil_div<int64_t>(output.numel(), threads)),
               threads,
               0,
               at::cuda::getCurrentCUDAStream()>>>(
                output.numel(),
                output.mutable_data_ptr<scalar_t>(),
                input.const_data_ptr<scalar_t>(),
                kernel.const_data_ptr<scalar_t>(),
                Sizes(output, input, kernel));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX));
}

void correlate2d_kernel_grad_kernel(const TensorBase& output, const TensorBase& input, const TensorBase& grad) {
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "correlate2d_kernel_grad_cuda", [&] {
    correlate2d_tap_kernel<scalar_t><<<blocks_for(output.numel()), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        output.numel(),
        output.mutable_data_ptr<scalar_t>(),
        input.const_data_ptr<scalar_t>(),
        grad.const_data_ptr<scalar_t>(),
        Sizes(grad, input, output));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

} // namespace

REGISTER_CUDA_DISPATCH(correlate2d_stub, &correlate2d_kernel)
REGISTER_CUDA_DISPATCH(correlate2d_kernel_grad_stub, &correlate2d_kernel_grad_kernel)

} // namespace at::native
