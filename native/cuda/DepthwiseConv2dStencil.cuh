#pragma once

#include <ATen/OpMathType.h>
#include <ATen/ceil_div.h>
#include <ATen/cuda/detail/KernelUtils.h>

#include <algorithm>
#include <cstdint>

// The convolution of most layers: a square weight without dilation, padded by half of its size, for one channel each.
// With the weight turned, that is the gradient of the input at stride 1, too. A thread computes some outputs from one
// window of the input in registers, which it loads as whole vectors where they are aligned. The arithmetic is the same
// for both memory formats: a window of `lanes` channels, of which contiguous images have one.

namespace at::native::depthwise {

// The images: [batch, channels, height, width] to [batch, channels, out_height, out_width].
struct Stencil {
  int batch, channels, height, width, out_height, out_width;
  bool is_turned;

  // Where the weight has the tap at `place` of a window.
  template <int size>
  __device__ int tap(int place) const {
    return is_turned ? size * size - 1 - place : place;
  }
};

// Elements that are loaded and stored together.
template <typename T, int n>
struct alignas(sizeof(T) * n) Elements {
  T at[n];
};

// Whether rows of this length at `data` consist of whole vectors.
template <int n, typename scalar_t>
bool is_aligned(const scalar_t* data, int64_t length) {
  return length % n == 0 && reinterpret_cast<uintptr_t>(data) % sizeof(Elements<scalar_t, n>) == 0;
}

template <int n, typename T, typename scalar_t>
__device__ void load(T* to, const scalar_t* from, bool is_inside) {
  using Vector = Elements<scalar_t, n>;
  const Vector vector = is_inside ? *reinterpret_cast<const Vector*>(from) : Vector{};
#pragma unroll
  for (int i = 0; i < n; ++i) {
    to[i] = static_cast<T>(vector.at[i]);
  }
}

template <int n, typename T, typename scalar_t>
__device__ void store(scalar_t* to, const T* from) {
  Elements<scalar_t, n> vector;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    vector.at[i] = static_cast<scalar_t>(from[i]);
  }
  *reinterpret_cast<Elements<scalar_t, n>*>(to) = vector;
}

// Adds to the sums of outputs in row y, [columns][lanes], what they read. `load_row(window, from_y)` loads the window,
// [elements][lanes], of which the outputs read from `first` on, and element 0 is at `from_x`; `tap_at(place)` returns a
// tap of the weight for each lane. What is beside a row is not multiplied: with an infinite tap, zero would give NaN.
template <
    int size,
    int stride,
    int columns,
    int lanes,
    int elements,
    int first,
    typename T,
    typename Load,
    typename Tap>
__device__ void
add_products(T (&sums)[columns * lanes], const Stencil& s, int y, int from_x, const Load& load_row, const Tap& tap_at) {
  bool is_inside[elements];
#pragma unroll
  for (int e = 0; e < elements; ++e) {
    is_inside[e] = from_x + e >= 0 && from_x + e < s.width;
  }
#pragma unroll
  for (int ky = 0; ky < size; ++ky) {
    const int from_y = y * stride - size / 2 + ky;
    if (from_y < 0 || from_y >= s.height) {
      continue;
    }
    T window[elements * lanes];
    load_row(window, from_y);
#pragma unroll
    for (int kx = 0; kx < size; ++kx) {
      const Elements<T, lanes> tap = tap_at(ky * size + kx);
#pragma unroll
      for (int i = 0; i < columns * lanes; ++i) {
        const int e = first + i / lanes * stride + kx;
        if (is_inside[e]) {
          sums[i] += tap.at[i % lanes] * window[e * lanes + i % lanes];
        }
      }
    }
  }
}

// The outputs next to each other that a thread computes of contiguous images.
constexpr int kColumns = 4;

// Contiguous images. `has_vectors`: whether all rows are aligned.
template <typename scalar_t, int size, int stride>
__global__ void depthwise_conv2d_rows_kernel(
    int count,
    scalar_t* output,
    const scalar_t* input,
    const scalar_t* weight,
    const scalar_t* bias,
    Stencil s,
    bool has_vectors) {
  using T = at::opmath_type<scalar_t>;
  // The window begins a vector before the outputs.
  constexpr int first = kColumns - size / 2, read = first + (kColumns - 1) * stride + size;
  constexpr int elements = (read + kColumns - 1) / kColumns * kColumns;
  static_assert(size / 2 <= kColumns);
  const int tiles = at::ceil_div(s.out_width, kColumns);
  CUDA_KERNEL_LOOP(i, count) {
    const int x = i % tiles * kColumns, y = i / tiles % s.out_height, plane = i / tiles / s.out_height;
    const int channel = plane % s.channels, from_x = x * stride - kColumns;
    T sums[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums[c] = bias ? static_cast<T>(bias[channel]) : T(0);
    }
    const auto load_row = [&](T* window, int from_y) {
      const scalar_t* row = input + (plane * s.height + from_y) * s.width;
      if (has_vectors) {
#pragma unroll
        for (int e = 0; e < elements; e += kColumns) {
          load<kColumns>(window + e, row + from_x + e, from_x + e >= 0 && from_x + e < s.width);
        }
      } else {
#pragma unroll
        for (int e = first; e < read; ++e) {
          load<1>(window + e, row + from_x + e, from_x + e >= 0 && from_x + e < s.width);
        }
      }
    };
    const auto tap_at = [&](int place) {
      return Elements<T, 1>{static_cast<T>(weight[channel * (size * size) + s.tap<size>(place)])};
    };
    add_products<size, stride, kColumns, 1, elements, first>(sums, s, y, from_x, load_row, tap_at);
    scalar_t* to = output + (plane * s.out_height + y) * s.out_width + x;
    if (has_vectors) {
      store<kColumns>(to, sums);
    } else {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (x + c < s.out_width) {
          store<1>(to + c, sums + c);
        }
      }
    }
  }
}

// The channels that a thread computes of images in channels_last: 16 bytes.
template <typename scalar_t>
constexpr int kLanes = 16 / sizeof(scalar_t);

// The outputs next to each other that it computes of these. More would not leave enough registers.
template <int size>
constexpr int kPixels = size == 3 ? 4 : 2;

// The most vectors of channels of a block, whose weights must fit into shared memory.
constexpr int kMostVectors = 16;

// Images in channels_last. threadIdx.x and blockIdx.x count vectors of channels, threadIdx.y and blockIdx.y outputs.
template <typename scalar_t, int size, int stride>
__global__ void depthwise_conv2d_pixels_kernel(
    scalar_t* output,
    const scalar_t* input,
    const scalar_t* weight,
    const scalar_t* bias,
    Stencil s) {
  using T = at::opmath_type<scalar_t>;
  constexpr int lanes = kLanes<scalar_t>;
  constexpr int columns = kPixels<size>;
  constexpr int elements = (columns - 1) * stride + size;
  using Tap = Elements<T, lanes>;
  alignas(sizeof(Tap)) __shared__ T taps[size * size][kMostVectors * lanes];
  static_assert(sizeof(taps) <= 48 * 1024);
  const int begin = blockIdx.x * blockDim.x * lanes, own = threadIdx.x * lanes, channel = begin + own;
  const int weights = std::min<int>(blockDim.x * lanes, s.channels - begin) * (size * size);
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < weights; i += blockDim.x * blockDim.y) {
    taps[s.tap<size>(i % (size * size))][i / (size * size)] = static_cast<T>(weight[begin * (size * size) + i]);
  }
  __syncthreads();
  const int tiles = at::ceil_div(s.out_width, columns);
  const int count = channel < s.channels ? s.batch * s.out_height * tiles : 0;
  for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < count; i += gridDim.y * blockDim.y) {
    const int x = i % tiles * columns, y = i / tiles % s.out_height, image = i / tiles / s.out_height;
    const int from_x = x * stride - size / 2;
    T sums[columns * lanes];
#pragma unroll
    for (int c = 0; c < columns * lanes; ++c) {
      sums[c] = bias ? static_cast<T>(bias[channel + c % lanes]) : T(0);
    }
    const auto load_row = [&](T* window, int from_y) {
      const scalar_t* row = input + (image * s.height + from_y) * s.width * s.channels + channel;
#pragma unroll
      for (int e = 0; e < elements; ++e) {
        const int at = from_x + e;
        load<lanes>(window + e * lanes, row + at * s.channels, at >= 0 && at < s.width);
      }
    };
    const auto tap_at = [&](int place) { return *reinterpret_cast<const Tap*>(&taps[place][own]); };
    add_products<size, stride, columns, lanes, elements, 0>(sums, s, y, from_x, load_row, tap_at);
    scalar_t* to = output + ((image * s.out_height + y) * s.out_width + x) * s.channels + channel;
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      if (x + c < s.out_width) {
        store<lanes>(to + c * s.channels, sums + c * lanes);
      }
    }
  }
}

} // namespace at::native::depthwise
