#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/RoiPool.h>
#include <ATen/native/RoiPoolBins.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ceil_div.h>
#include <ATen/core/TensorAccessor.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cmath>

namespace at::native {
namespace {

constexpr int kThreads = 256;

template <typename T>
__device__ int64_t image_of(const T* box, int64_t images) {
  CUDA_KERNEL_ASSERT(
      box[0] >= 0 && box[0] < static_cast<T>(images) && box[0] == std::floor(box[0]) &&
      "roi_pool(): expected the first column of boxes to be the index of an image");
  return static_cast<int64_t>(box[0]);
}

// A block for each box, or for a part of its channels: each thread computes some bins of some channels, with the sizes
// of the box in registers.
template <typename scalar_t>
__global__ void roi_pool_forward_kernel(
    scalar_t* output,
    int32_t* indices,
    const PackedTensorAccessor64<const scalar_t, 4> input,
    const at::opmath_type<scalar_t>* boxes,
    int64_t box_count,
    at::opmath_type<scalar_t> spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width) {
  using T = at::opmath_type<scalar_t>;
  const int64_t bins = pooled_height * pooled_width, count = input.size(1) * bins;
  for (int64_t k = blockIdx.x; k < box_count; k += gridDim.x) {
    const T* box = boxes + k * 5;
    const auto image = input[image_of(box, input.size(0))];
    CUDA_KERNEL_ASSERT(
        std::isfinite(box[1]) && std::isfinite(box[2]) && std::isfinite(box[3]) && std::isfinite(box[4]) &&
        "roi_pool(): expected boxes to be finite");
    const RoiSpan<T> across(box[1] * spatial_scale, box[3] * spatial_scale, pooled_width);
    const RoiSpan<T> down(box[2] * spatial_scale, box[4] * spatial_scale, pooled_height);
    const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; i < count; i += step) {
      const auto plane = image[i / bins];
      const RoiRange columns = across.bin(i % pooled_width, input.size(3));
      const RoiRange rows = down.bin(i / pooled_width % pooled_height, input.size(2));
      T best = 0;
      int64_t place = -1;
      if (rows.begin < rows.end && columns.begin < columns.end) {
        best = plane[rows.begin][columns.begin];
        place = rows.begin * input.size(3) + columns.begin;
        for (int64_t y = rows.begin; y < rows.end; ++y) {
          const auto row = plane[y];
          for (int64_t x = columns.begin; x < columns.end; ++x) {
            const T value = row[x];
            // The first NaN stays, or else the first of the largest.
            if (!(value <= best) && best == best) {
              best = value;
              place = y * input.size(3) + x;
            }
          }
        }
      }
      output[k * count + i] = static_cast<scalar_t>(best);
      indices[k * count + i] = static_cast<int32_t>(place);
    }
  }
}

// A block for each plane. Its threads read the gradients of as many bins together, and then each adds those of its own
// pixels, in the order of boxes and bins: so additions need not be atomic, and each sum equals that of the CPU kernel.
template <typename T>
__global__ void roi_pool_backward_plane_kernel(
    int64_t planes,
    T* grad_input,
    const T* grad_output,
    const T* boxes,
    const int32_t* indices,
    int64_t images,
    int64_t channels,
    int64_t pixels,
    int64_t box_count,
    int64_t bins) {
  __shared__ int32_t places[kThreads];
  __shared__ T grads[kThreads];
  for (int64_t plane = blockIdx.x; plane < planes; plane += gridDim.x) {
    T* sums = grad_input + plane * pixels;
    for (int64_t first = 0; first < box_count * bins; first += kThreads) {
      const int64_t i = first + threadIdx.x, k = i / bins;
      places[threadIdx.x] = -1;
      if (k < box_count && image_of(boxes + k * 5, images) == plane / channels) {
        const int64_t bin = (k * channels + plane % channels) * bins + i % bins;
        CUDA_KERNEL_ASSERT(
            indices[bin] < pixels && "roi_pool_backward(): expected indices to be below the size of a plane");
        places[threadIdx.x] = indices[bin];
        grads[threadIdx.x] = grad_output[bin];
      }
      __syncthreads();
      for (int j = 0; j < kThreads; ++j) {
        if (places[j] >= 0 && places[j] % kThreads == static_cast<int>(threadIdx.x)) {
          sums[places[j]] += grads[j];
        }
      }
      __syncthreads();
    }
  }
}

void roi_pool_kernel(
    const TensorBase& output,
    const TensorBase& indices,
    const TensorBase& input,
    const TensorBase& boxes,
    double spatial_scale) {
  if (output.numel() == 0) {
    return;
  }
  // As many blocks as keep the GPU busy.
  const int64_t box_count = output.size(0), blocks = at::ceil_div<int64_t>(output.numel() / box_count, kThreads);
  const int64_t busy = at::cuda::getCurrentDeviceProperties()->multiProcessorCount * 16 / box_count + 1;
  const dim3 grid(
      static_cast<unsigned>(std::min<int64_t>(box_count, int64_t(1) << 20)),
      static_cast<unsigned>(std::min<int64_t>({blocks, busy, 65535})));
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "roi_pool_cuda", [&] {
    using T = at::opmath_type<scalar_t>;
    roi_pool_forward_kernel<scalar_t><<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        output.mutable_data_ptr<scalar_t>(),
        indices.mutable_data_ptr<int32_t>(),
        input.packed_accessor64<const scalar_t, 4>(),
        boxes.const_data_ptr<T>(),
        box_count,
        static_cast<T>(spatial_scale),
        output.size(2),
        output.size(3));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

void roi_pool_backward_kernel(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& boxes,
    const TensorBase& indices) {
  if (grad_output.numel() == 0) {
    return;
  }
  const int64_t planes = grad_input.size(0) * grad_input.size(1);
  const auto blocks = static_cast<int>(std::min<int64_t>(planes, int64_t(1) << 20));
  AT_DISPATCH_FLOATING_TYPES(grad_input.scalar_type(), "roi_pool_backward_cuda", [&] {
    roi_pool_backward_plane_kernel<scalar_t><<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        planes,
        grad_input.mutable_data_ptr<scalar_t>(),
        grad_output.const_data_ptr<scalar_t>(),
        boxes.const_data_ptr<scalar_t>(),
        indices.const_data_ptr<int32_t>(),
        grad_input.size(0),
        grad_input.size(1),
        grad_input.size(2) * grad_input.size(3),
        boxes.size(0),
        grad_output.size(2) * grad_output.size(3));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

} // namespace

REGISTER_CUDA_DISPATCH(roi_pool_stub, &roi_pool_kernel)
REGISTER_CUDA_DISPATCH(roi_pool_backward_stub, &roi_pool_backward_kernel)

} // namespace at::native
