#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/ImprovedTripletLoss.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/TensorAccessor.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAStream.h>
#include <ATen/native/cuda/block_reduce.cuh>

#include <algorithm>

namespace at::native {
namespace {

constexpr int kMostThreads = cuda_utils::kCUDABlockReduceNumThreads;

// Rows of anchor, positive or negative.
template <typename scalar_t>
using Rows = PackedTensorAccessor64<const scalar_t, 2>;

// A row of the distances, [N, 2].
template <typename T>
struct Distances {
  T to_positive;
  T to_negative;
};

// The squared distances of one anchor to its positive and its negative. Every thread of the block calls this and gets
// them.
template <typename scalar_t, typename T = at::opmath_type<scalar_t>>
__device__ Distances<T> squared_distances(
    const Rows<scalar_t>& anchor,
    const Rows<scalar_t>& positive,
    const Rows<scalar_t>& negative,
    int64_t row) {
  T ap = 0, an = 0;
  for (int64_t i = threadIdx.x; i < anchor.size(1);) {
    // The error of a long sum grows with its length, so it is made of pieces.
    T piece_ap = 0, piece_an = 0;
    for (int n = 0; n < 128 && i < anchor.size(1); ++n, i += blockDim.x) {
      const T x = anchor[row][i];
      const T u = x - static_cast<T>(positive[row][i]);
      const T v = x - static_cast<T>(negative[row][i]);
      piece_ap += u * u;
      piece_an += v * v;
    }
    ap += piece_ap;
    an += piece_an;
  }
  __shared__ T warps[kMostThreads / C10_WARP_SIZE];
  __shared__ Distances<T> sums;
  ap = cuda_utils::BlockReduceSum(ap, warps);
  an = cuda_utils::BlockReduceSum(an, warps);
  // BlockReduceSum has a barrier, so every thread has read the sums of the previous row.
  if (threadIdx.x == 0) {
    sums = {ap, an};
  }
  __syncthreads();
  return sums;
}

// A block for each row.
template <typename scalar_t, typename T = at::opmath_type<scalar_t>>
__global__ void improved_triplet_loss_forward_kernel(
    T* losses,
    Distances<T>* distances,
    Rows<scalar_t> anchor,
    Rows<scalar_t> positive,
    Rows<scalar_t> negative,
    TripletFormula<T> formula) {
  for (int64_t row = blockIdx.x; row < anchor.size(0); row += gridDim.x) {
    const auto d = squared_distances<scalar_t>(anchor, positive, negative, row);
    if (threadIdx.x == 0) {
      losses[row] = formula.loss(d.to_positive, d.to_negative);
      distances[row] = d;
    }
  }
}

// A block for each row.
template <typename scalar_t, typename T = at::opmath_type<scalar_t>>
__global__ void improved_triplet_loss_grad_kernel(
    scalar_t* grad_anchor,
    scalar_t* grad_positive,
    scalar_t* grad_negative,
    const T* grad_losses,
    const Distances<T>* distances,
    Rows<scalar_t> anchor,
    Rows<scalar_t> positive,
    Rows<scalar_t> negative,
    TripletFormula<T> formula) {
  for (int64_t row = blockIdx.x; row < anchor.size(0); row += gridDim.x) {
    const auto d = distances[row];
    const auto slopes = formula.slopes(d.to_positive, d.to_negative);
    const T by_ap = 2 * grad_losses[row] * slopes.by_ap;
    const T by_an = 2 * grad_losses[row] * slopes.by_an;
    for (int64_t i = threadIdx.x; i < anchor.size(1); i += blockDim.x) {
      const T x = anchor[row][i];
      const T through_positive = (x - static_cast<T>(positive[row][i])) * by_ap;
      const T through_negative = (x - static_cast<T>(negative[row][i])) * by_an;
      const int64_t to = row * anchor.size(1) + i;
      if (grad_anchor) {
        grad_anchor[to] = static_cast<scalar_t>(through_positive + through_negative);
      }
      if (grad_positive) {
        grad_positive[to] = static_cast<scalar_t>(-through_positive);
      }
      if (grad_negative) {
        grad_negative[to] = static_cast<scalar_t>(-through_negative);
      }
    }
  }
}

// Whole warps, enough for one element per thread.
int threads_for(int64_t length) {
  int threads = at::cuda::warp_size();
  while (threads < length && threads < kMostThreads) {
    threads *= 2;
  }
  return threads;
}

int blocks_for(int64_t rows) {
  return static_cast<int>(std::min<int64_t>(rows, int64_t(1) << 20));
}

void improved_triplet_loss_kernel(
    const TensorBase& losses,
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  const int64_t rows = inputs[0].size(0);
  if (rows == 0) {
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, inputs[0].scalar_type(), "improved_triplet_loss_cuda", [&] {
    using T = at::opmath_type<scalar_t>;
    improved_triplet_loss_forward_kernel<scalar_t>
        <<<blocks_for(rows), threads_for(inputs[0].size(1)), 0, at::cuda::getCurrentCUDAStream()>>>(
            losses.mutable_data_ptr<T>(),
            reinterpret_cast<Distances<T>*>(distances.mutable_data_ptr<T>()),
            inputs[0].packed_accessor64<const scalar_t, 2>(),
            inputs[1].packed_accessor64<const scalar_t, 2>(),
            inputs[2].packed_accessor64<const scalar_t, 2>(),
            TripletFormula<T>(parameters));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

void improved_triplet_loss_backward_kernel(
    const TripletInputs& grads,
    const TensorBase& grad_losses,
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  const int64_t rows = inputs[0].size(0);
  if (rows == 0) {
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      kHalf, kBFloat16, inputs[0].scalar_type(), "improved_triplet_loss_backward_cuda", [&] {
        using T = at::opmath_type<scalar_t>;
        const auto data = [](const TensorBase& x) { return x.defined() ? x.mutable_data_ptr<scalar_t>() : nullptr; };
        improved_triplet_loss_grad_kernel<scalar_t>
            <<<blocks_for(rows), threads_for(inputs[0].size(1)), 0, at::cuda::getCurrentCUDAStream()>>>(
                data(grads[0]),
                data(grads[1]),
                data(grads[2]),
                grad_losses.const_data_ptr<T>(),
                reinterpret_cast<const Distances<T>*>(distances.const_data_ptr<T>()),
                inputs[0].packed_accessor64<const scalar_t, 2>(),
                inputs[1].packed_accessor64<const scalar_t, 2>(),
                inputs[2].packed_accessor64<const scalar_t, 2>(),
                TripletFormula<T>(parameters));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      });
}

} // namespace

REGISTER_CUDA_DISPATCH(improved_triplet_loss_stub, &improved_triplet_loss_kernel)
REGISTER_CUDA_DISPATCH(improved_triplet_loss_backward_stub, &improved_triplet_loss_backward_kernel)

} // namespace at::native
