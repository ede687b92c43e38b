#pragma once

#include <ATen/OpMathType.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/DepthwiseConv2dAxis.h>
#include <ATen/native/cpu/Generate.h>
#include <c10/util/Unroll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

// The inner loops of a depthwise convolution and of the gradient of its weight. The elements of a vector are
// neighbouring channels of one pixel, so that each has a weight of its own. A tile is kTile outputs of a row; an
// element that is read serves all the taps of a run (see DepthwiseConv2dAxis.h) that meet it. Half types are computed
// in float: they are converted as they are read, and rounded once.

namespace at::native::depthwise {
inline namespace CPU_CAPABILITY {

// A row of the image and the weights of the kernel's row that it is multiplied by.
template <typename T>
struct Source {
  const T* row;
  const at::opmath_type<T>* weights;
};

// A run of the taps of a tile.
struct TileRun {
  int64_t taps;
  int64_t first;               // the first element inside of the image, a column
  uint32_t inside;             // bit r: element r of the tile is inside of the image
  int64_t kernel, kernel_step; // see Run
};

// The bits of the elements from first to last.
constexpr uint32_t elements_inside(int64_t first, int64_t last) {
  return (uint32_t{1} << last) - (uint32_t{1} << first);
}

template <typename T>
struct TileArgs {
  const Source<T>* sources;
  int64_t n;
  int64_t step;   // from one element to the next
  int64_t offset; // of the first element that is inside, in the row
  uint32_t inside;
  int64_t weight_offset, weight_step;
  const at::opmath_type<T>* start; // what the sums are added to
  int64_t start_step;
  T* out;
  int64_t out_step;
  // How many tiles there are, and how much further the next one is: other columns or other channels.
  int64_t tiles;
  int64_t next_element, next_weight, next_start, next_out;
};

// Without vectors, on x86-64 before AVX2, the registers hold one sum or two. Loops are used there, which add in the
// same order: they compile in a third of the time and take a quarter longer.
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512) || defined(__aarch64__)
constexpr bool kIsUnrolled = true;
#else
constexpr bool kIsUnrolled = false;
#endif

// The number of elements that the tile of a run reads.
constexpr int64_t tile_elements(int64_t taps, int64_t step) {
  return step * (kTile - 1) + taps;
}

// Vec::loadu for a vector with several uses. Without the fence GCC makes it a memory operand of each use and so reads
// it again; a 3x3 kernel then takes a quarter longer (Zen 5).
template <typename T>
C10_ALWAYS_INLINE auto loadu_once(const T* from) {
  vec::Vectorized<at::opmath_type<T>> elements;
  if constexpr (vec::is_reduced_floating_point_v<T>) {
    vec::load_to_float(from, elements);
  } else {
    elements = vec::Vectorized<T>::loadu(from);
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
  return elements;
}

template <typename T>
C10_ALWAYS_INLINE void store_rounded(T* to, const vec::Vectorized<at::opmath_type<T>>& elements) {
  if constexpr (vec::is_reduced_floating_point_v<T>) {
    vec::convert_from_float<T>(elements, elements).store(to, elements.size());
  } else {
    elements.store(to);
  }
}

// The output of a tile whose tap k meets element r, or -1.
constexpr int output_of(int r, int k, int S, int outputs) {
  return r >= k && (r - k) % S == 0 && (r - k) / S < outputs ? (r - k) / S : -1;
}

// These are folds: a lambda for each product takes three times as long to compile.

// Reads element r of a tile, if it is inside, and adds its products.
template <int r, int S, bool is_edge, typename T, typename Vec, size_t K, int... k>
C10_ALWAYS_INLINE void add_element(
    const T*& x,
    const TileArgs<T>& a,
    const std::array<Vec, K>& weights,
    std::array<Vec, kTile>& sums,
    std::integer_sequence<int, k...> /*taps*/) {
  if (!is_edge || (a.inside & (uint32_t{1} << r))) {
    const auto element = loadu_once(x);
    const auto add = [&](Vec& sum, const Vec& weight)
                         C10_ALWAYS_INLINE_ATTRIBUTE { sum = vec::fmadd(element, weight, sum); };
    ((output_of(r, k, S, kTile) < 0 ? void() : add(sums[std::max(output_of(r, k, S, kTile), 0)], weights[k])), ...);
    x += a.step;
  }
}

template <int S, bool is_edge, typename T, typename Vec, size_t K, int... r>
C10_ALWAYS_INLINE void add_elements(
    const T* x,
    const TileArgs<T>& a,
    const std::array<Vec, K>& weights,
    std::array<Vec, kTile>& sums,
    std::integer_sequence<int, r...> /*elements*/) {
  (add_element<r, S, is_edge>(x, a, weights, sums, std::make_integer_sequence<int, K>()), ...);
}

template <typename T, typename Vec, size_t... j>
C10_ALWAYS_INLINE void
store_all(T* to, int64_t step, const std::array<Vec, kTile>& sums, std::index_sequence<j...> /*of*/) {
  (store_rounded(to + j * step, sums[j]), ...);
}

template <int K, int S, typename T>
void convolve_tile_in_loops(const TileArgs<T>& a) {
  using Vec = vec::Vectorized<at::opmath_type<T>>;
  int first = 0; // of the elements inside
  while (first < tile_elements(K, S) && !(a.inside & (uint32_t{1} << first))) {
    ++first;
  }
  for (int j = 0; j < kTile; ++j) {
    auto sum = Vec::loadu(a.start + j * a.start_step);
    for (int64_t i = 0; i < a.n; ++i) {
      const auto* row = a.sources[i].row + a.offset;
      const auto* w = a.sources[i].weights + a.weight_offset;
      for (int k = 0, r = S * j; k < K; ++k, ++r) {
        if (a.inside & (uint32_t{1} << r)) {
          sum = vec::fmadd(loadu_once(row + (r - first) * a.step), Vec::loadu(w + k * a.weight_step), sum);
        }
      }
    }
    store_rounded(a.out + j * a.out_step, sum);
  }
}

template <int K, int S, bool is_edge, typename T>
void convolve_tile_unrolled(const TileArgs<T>& a) {
  using Vec = vec::Vectorized<at::opmath_type<T>>;
  auto sums = generate<kTile>([&](auto j) { return Vec::loadu(a.start + j * a.start_step); });
  for (int64_t i = 0; i < a.n; ++i) {
    const auto* w = a.sources[i].weights + a.weight_offset;
    const auto weights = generate<K>([&](auto k) { return Vec::loadu(w + k * a.weight_step); });
    constexpr std::make_integer_sequence<int, tile_elements(K, S)> elements;
    add_elements<S, is_edge>(a.sources[i].row + a.offset, a, weights, sums, elements);
  }
  store_all(a.out, a.out_step, sums, std::make_index_sequence<kTile>());
}

template <typename T, int K, int S, bool is_edge>
void convolve_tiles(const TileArgs<T>& args) {
  // A copy, so that no store can change it.
  auto a = args;
  for (int64_t tile = 0; tile < a.tiles; ++tile) {
    if constexpr (kIsUnrolled) {
      convolve_tile_unrolled<K, S, is_edge>(a);
    } else {
      convolve_tile_in_loops<K, S>(a);
    }
    a.offset += a.next_element;
    a.weight_offset += a.next_weight;
    a.start += a.next_start;
    a.out += a.next_out;
  }
}

// Without wide vectors the test of each element costs little, and the code without it as much space again.
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
constexpr bool kIsEdgeOnly = false;
#else
constexpr bool kIsEdgeOnly = true;
#endif

// The functions for runs of 1, 2, ... taps, by step.
template <typename T, bool is_edge, int... taps>
constexpr auto tile_functions(std::integer_sequence<int, taps...> /*taps*/) {
  return std::array{
      std::array{&convolve_tiles<T, taps + 1, 1, is_edge>...}, std::array{&convolve_tiles<T, taps + 1, 2, is_edge>...}};
}
template <typename T, bool is_edge>
constexpr auto kTileFunctions =
    tile_functions<T, is_edge || kIsEdgeOnly>(std::make_integer_sequence<int, kLongestRun>());

// Rows of the kernel whose gradients are computed together: enough independent sums to hide the latency of an FMA, and
// few enough for the registers.
constexpr int rows_at_once(int taps) {
  return taps <= 3 ? 3 : taps <= 5 ? 2 : 1;
}

// The gradient of the weight: a run of taps of some rows of the kernel, for the outputs of a phase.
template <typename T>
struct CorrelateArgs {
  const T* grads; // a row of grad_output
  int64_t grad_step;
  int64_t outputs;
  int64_t base, spacing; // the columns of the image that they read; see Window
  int64_t first, last;   // of all the elements that the outputs read, those inside of the image
  int64_t step, next;    // from one column of the image to the next, and from one element to the next
  std::array<const T*, rows_at_once(1)> rows;            // of the image, one for each row of the kernel
  std::array<at::opmath_type<T>*, rows_at_once(1)> sums; // what is added to
  int64_t sums_step;                                     // from one tap to the next
};

// Adds to the sums of a row of the kernel, from sums[first] on, the products of element r and the gradients that meet
// it.
template <int r, int S, int first, typename T, typename Vec, size_t B, typename Sums, int... k>
C10_ALWAYS_INLINE void add_gradient(
    const T*& x,
    int64_t step,
    const std::array<Vec, B>& grads,
    Sums& sums,
    std::integer_sequence<int, k...> /*taps*/) {
  const auto element = loadu_once(x);
  const auto add = [&](Vec& sum, const Vec& grad) C10_ALWAYS_INLINE_ATTRIBUTE { sum = vec::fmadd(element, grad, sum); };
  ((output_of(r, k, S, B) < 0 ? void() : add(sums[first + k], grads[std::max(output_of(r, k, S, B), 0)])), ...);
  x += step;
}

template <int r, int S, int K, typename T, size_t R, typename Grads, typename Sums, int... row>
C10_ALWAYS_INLINE void add_gradients(
    std::array<const T*, R>& rows,
    int64_t step,
    uint32_t inside,
    const Grads& grads,
    Sums& sums,
    std::integer_sequence<int, row...> /*rows*/) {
  if (inside & (uint32_t{1} << r)) {
    (add_gradient<r, S, row * K>(rows[row], step, grads, sums, std::make_integer_sequence<int, K>()), ...);
  }
}

// B outputs from j on, of which some of the elements, r... of them, may be outside of the image.
template <int B, int K, int S, int R, typename T, typename Sums, int... r>
C10_ALWAYS_INLINE void
correlate_outputs(const CorrelateArgs<T>& a, int64_t j, Sums& sums, std::integer_sequence<int, r...> /*elements*/) {
  const int64_t first = std::max<int64_t>(a.first - S * j, 0), last = std::min<int64_t>(a.last - S * j, sizeof...(r));
  const auto inside = elements_inside(first, last);
  const auto place = (a.base + (S * j + first) * a.spacing) * a.step;
  const auto grads = generate<B>([&](auto i) { return loadu_once(a.grads + (j + i) * a.grad_step); });
  auto rows = generate<R>([&](auto row) { return a.rows[row] + place; });
  (add_gradients<r, S, K>(rows, a.next, inside, grads, sums, std::make_integer_sequence<int, R>()), ...);
}

template <int K, int S, typename T>
void correlate_in_loops(const CorrelateArgs<T>& a, int64_t begin, int64_t end) {
  using Vec = vec::Vectorized<at::opmath_type<T>>;
  for (int row = 0; row < rows_at_once(K); ++row) {
    for (int k = 0; k < K; ++k) {
      Vec sum(0);
      for (auto j = begin; j < end; ++j) {
        const auto element = S * j + k;
        if (element >= a.first && element < a.last) {
          const auto* x = a.rows[row] + (a.base + element * a.spacing) * a.step;
          sum = vec::fmadd(loadu_once(x), loadu_once(a.grads + j * a.grad_step), sum);
        }
      }
      auto* to = a.sums[row] + k * a.sums_step;
      (Vec::loadu(to) + sum).store(to);
    }
  }
}

template <int K, int S, typename T>
void correlate_unrolled(const CorrelateArgs<T>& a, int64_t begin, int64_t end) {
  using acc_t = at::opmath_type<T>;
  using Vec = vec::Vectorized<acc_t>;
  constexpr int R = rows_at_once(K);
  // With the sums as many registers as AVX2 has.
  constexpr int most = 4;
  auto sums = generate<R * K>([](auto) { return Vec(acc_t(0)); });
  auto j = begin;
  for (; j + most <= end; j += most) {
    correlate_outputs<most, K, S, R>(a, j, sums, std::make_integer_sequence<int, S*(most - 1) + K>());
  }
  for (; j < end; ++j) {
    correlate_outputs<1, K, S, R>(a, j, sums, std::make_integer_sequence<int, K>());
  }
  c10::ForcedUnroll<R>{}([&](auto row) C10_ALWAYS_INLINE_ATTRIBUTE {
    c10::ForcedUnroll<K>{}([&](auto k) C10_ALWAYS_INLINE_ATTRIBUTE {
      auto* to = a.sums[row] + k * a.sums_step;
      (Vec::loadu(to) + sums[row * K + k]).store(to);
    });
  });
}

template <typename T, int K, int S>
void correlate(const CorrelateArgs<T>& args) {
  // A sum of many terms loses digits; what is added to it is itself a sum.
  constexpr int64_t segment = 128;
  const auto a = args;
  // The outputs that read the image at all.
  const auto begin = std::max<int64_t>((a.first - K + S) / S, 0);
  const auto end = std::min((a.last + S - 1) / S, a.outputs);
  for (auto j = begin; j < end; j += segment) {
    const auto stop = std::min(j + segment, end);
    if constexpr (kIsUnrolled) {
      correlate_unrolled<K, S>(a, j, stop);
    } else {
      correlate_in_loops<K, S>(a, j, stop);
    }
  }
}

// The functions for runs of 1, 2, ... taps, by step.
template <typename T, int... taps>
constexpr auto correlate_functions(std::integer_sequence<int, taps...> /*taps*/) {
  return std::array{std::array{&correlate<T, taps + 1, 1>...}, std::array{&correlate<T, taps + 1, 2>...}};
}
template <typename T>
constexpr auto kCorrelateFunctions = correlate_functions<T>(std::make_integer_sequence<int, kLongestRun>());

} // namespace CPU_CAPABILITY
} // namespace at::native::depthwise
