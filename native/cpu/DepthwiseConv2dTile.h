#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/DepthwiseConv2dAxis.h>
#include <ATen/native/cpu/RoundHalf.h>
#include <ATen/native/cpu/Stream.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace at::native {
inline namespace CPU_CAPABILITY {

// The inner loops of a depthwise convolution, on images of float or double, packed or not (see DepthwiseConv2dAxis.h).
// The elements of a vector are neighbours in the dimension that is contiguous: channels in channels_last, else columns.
// Along the other one a tile takes kTile outputs, and each element that is read serves all of a run's taps that it
// meets: with S = 1 each of them, with S = 2 every second.

constexpr int64_t kTile = 7;
// A block is at most kMostVectors vectors wide, of which kVectorsAtOnce are computed at a time: as many as there are
// registers for. With AVX2 two of them are a cache line, all of which is used while it is near.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int kMostVectors = 2, kVectorsAtOnce = 2;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int kMostVectors = 2, kVectorsAtOnce = 1;
#else
constexpr int kMostVectors = 1, kVectorsAtOnce = 1;
#endif

// What a Vectorized holds, but not set to zero where it is declared. GCC would zero an array of Vectorized in memory,
// for each tile anew, which took AVX2 a third of its time.
template <typename acc_t>
struct RegisterOf {
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
  typedef acc_t type __attribute__((vector_size(sizeof(vec::Vectorized<acc_t>))));
#else
  using type = vec::Vectorized<acc_t>;
#endif
};
template <typename acc_t>
using Register = typename RegisterOf<acc_t>::type;

// What is read once is to stay in a register for all of its products: GCC would else read it again for each, which
// takes twice as long where it lies across cache lines, and keep an address in memory for each element of a tile.
template <typename acc_t>
C10_ALWAYS_INLINE vec::Vectorized<acc_t> in_register(vec::Vectorized<acc_t> elements) {
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
  Register<acc_t> value = elements;
  asm("" : "+v"(value));
  return value;
#else
  return elements;
#endif
}

template <typename acc_t>
C10_ALWAYS_INLINE const acc_t* in_register(const acc_t* address) {
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
  asm("" : "+r"(address));
#endif
  return address;
}

// Of the last vector which elements there are. AVX512 neither reads nor writes the others; else they are read, and then
// taken as zero.
#ifdef CPU_CAPABILITY_AVX512
constexpr bool kHasMasks = true;

template <typename acc_t>
class LaneMask {
 public:
  using Vec = vec::Vectorized<acc_t>;

  explicit LaneMask(int64_t count) : bits_((uint32_t{1} << count) - 1) {}

  Vec load(const acc_t* from) const {
    if constexpr (std::is_same_v<acc_t, float>) {
      return _mm512_maskz_loadu_ps(bits_, from);
    } else {
      return _mm512_maskz_loadu_pd(bits_, from);
    }
  }
  void store(acc_t* to, const Vec& elements) const {
    if constexpr (std::is_same_v<acc_t, float>) {
      _mm512_mask_storeu_ps(to, bits_, elements);
    } else {
      _mm512_mask_storeu_pd(to, bits_, elements);
    }
  }

 private:
  uint32_t bits_;
};
#else
constexpr bool kHasMasks = false;

template <typename acc_t>
class LaneMask {
 public:
  using Vec = vec::Vectorized<acc_t>;

  explicit LaneMask(int64_t count) {
    static constexpr auto table = [] {
      std::array<vec::int_same_size_t<acc_t>, 2 * Vec::size()> bits{};
      for (int i = 0; i < Vec::size(); ++i) {
        bits[i] = -1;
      }
      return bits;
    }();
    mask_ = Vec::loadu(table.data() + Vec::size() - count);
  }

  Vec load(const acc_t* from) const {
    return Vec::loadu(from) & mask_;
  }

 private:
  Vec mask_;
};
#endif

// V of a tile's `vectors` vectors.
template <
    typename acc_t,
    int K,
    int S,
    int V,
    int vectors,
    bool of_plane,
    bool is_edge,
    bool is_partial,
    typename out_t>
C10_ALWAYS_INLINE void tile_part(
    const acc_t* const* xs,
    int64_t n,
    int64_t offset,
    int64_t step,
    const acc_t* w,
    const acc_t* start,
    int64_t start_step,
    out_t* out,
    int64_t out_step,
    bool is_streamed,
    Inside inside,
    int64_t lanes) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  constexpr int W = of_plane ? 1 : V;
  const LaneMask<acc_t> last(is_partial ? lanes - (V - 1) * size : size);
  Register<acc_t> sums[kTile][V];
#pragma GCC unroll 8
  for (int j = 0; j < kTile; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      sums[j][v] = Vec::loadu(start + j * start_step + v * size);
    }
  }
  for (int64_t t = 0; t < n; ++t) {
    const acc_t* x = xs[t] + offset;
    Register<acc_t> run[K][W];
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < W; ++v) {
        run[k][v] = of_plane ? Vec(w[k]) : Vec::loadu(w + (k * vectors + v) * size);
      }
    }
    w += of_plane ? K : K * vectors * size;
#pragma GCC unroll 20
    for (int r = 0; r < S * (kTile - 1) + K; ++r) {
      if (!is_edge || (r >= inside.first && r < inside.last)) {
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          const auto* from = x + v * size;
          const auto element = in_register(is_partial && v + 1 == V ? last.load(from) : Vec::loadu(from));
#pragma GCC unroll 8
          for (int k = 0; k < K; ++k) {
            const auto j = (r - k) / S;
            if (r >= k && (r - k) % S == 0 && j < kTile) {
              sums[j][v] = vec::fmadd(element, Vec(run[k][of_plane ? 0 : v]), Vec(sums[j][v]));
            }
          }
        }
      }
      x = in_register(x + step);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kTile; ++j) {
    if constexpr (std::is_same_v<out_t, acc_t>) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        auto* to = out + j * out_step + v * size;
        if constexpr (is_partial) {
          if (v + 1 == V) {
            last.store(to, Vec(sums[j][v]));
            continue;
          }
        }
        if (is_streamed) {
          stream(to, Vec(sums[j][v]));
        } else {
          Vec(sums[j][v]).store(to);
        }
      }
    } else {
      rounded<out_t>(Vec(sums[j][0]), Vec(sums[j][V - 1])).store(out + j * out_step, V * size);
    }
  }
}

// A run of K taps, V vectors wide. Channels have each their own weight, the columns of a plane the same.
//
// Args:
//   xs: for each tap of the contiguous dimension and each source, where its elements begin; n of them.
//   offset, step: where in x the tile begins, and from one element to the next; an output is S elements behind the
//     one before.
//   weights: for each of xs those of the run.
//   start, out: the sums are added to start and go to out, rounded where that is of a half type; their steps are from
//     one output to the next.
//   tiles: how many tiles there are, one behind the other.
//   is_streamed: out is written past the caches.
//   inside: at an edge, which elements there are; the others are not read.
//   lanes: where the last vector is not whole, how many elements there are in all vectors; the others are neither read
//     from x nor written.
template <typename acc_t, int K, int S, int V, bool of_plane, bool is_edge, bool is_partial, typename out_t>
void tile(
    const acc_t* const* xs,
    int64_t n,
    int64_t offset,
    int64_t step,
    const acc_t* weights,
    const acc_t* start,
    int64_t start_step,
    out_t* out,
    int64_t out_step,
    int64_t tiles,
    bool is_streamed,
    Inside inside,
    int64_t lanes) {
  constexpr int at_once = std::min(V, kVectorsAtOnce);
  constexpr int64_t size = vec::Vectorized<acc_t>::size();
  static_assert(!is_partial || at_once == V, "the last vector is to be in the only part");
  for (int64_t i = 0; i < tiles; ++i) {
    for (int64_t l = 0; l < V * size; l += at_once * size) {
      tile_part<acc_t, K, S, at_once, V, of_plane, is_edge, is_partial>(
          xs,
          n,
          offset + l,
          step,
          weights + (of_plane ? 0 : l),
          start + l,
          start_step,
          out + l,
          out_step,
          is_streamed,
          inside,
          lanes);
    }
    offset += kTile * S * step;
    start += kTile * start_step;
    out += kTile * out_step;
  }
}

template <typename acc_t, int K, int V, int B, bool is_edge>
inline void correlate_block(
    const acc_t* g,
    int64_t g_step,
    const acc_t* x,
    int64_t x_step,
    Inside inside,
    const LaneMask<acc_t>& last,
    Register<acc_t> (&sums)[K][V]) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  Register<acc_t> grads[B][V];
#pragma GCC unroll 4
  for (int i = 0; i < B; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const auto* from = g + v * size;
      grads[i][v] = in_register(kHasMasks && v + 1 == V ? last.load(from) : Vec::loadu(from));
    }
    g = in_register(g + g_step);
  }
#pragma GCC unroll 16
  for (int r = 0; r < B + K - 1; ++r) {
    if (!is_edge || (r >= inside.first && r < inside.last)) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const auto* from = x + v * size;
        const auto element = in_register(v + 1 == V ? last.load(from) : Vec::loadu(from));
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
          if (r - k >= 0 && r - k < B) {
            sums[k][v] = vec::fmadd(element, Vec(grads[r - k][v]), Vec(sums[k][v]));
          }
        }
      }
    }
    x = in_register(x + x_step);
  }
}

template <typename acc_t, int K, int V, bool has_edges>
C10_ALWAYS_INLINE void correlate_part(
    const acc_t* g,
    int64_t g_step,
    const acc_t* x,
    int64_t x_step,
    int64_t n,
    Inside inside,
    int64_t lanes,
    acc_t* sums_elements,
    int64_t sums_step) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  constexpr int B = 4;
  Register<acc_t> sums[K][V];
  const LaneMask<acc_t> last(lanes - (V - 1) * size);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      sums[k][v] = Vec::loadu(sums_elements + k * sums_step + v * size);
    }
  }
  int64_t i = 0;
  const auto add = [&](auto block, auto is_edge) {
    const Inside there{inside.first - i, inside.last - i};
    correlate_block<acc_t, K, V, block(), is_edge()>(g + i * g_step, g_step, x + i * x_step, x_step, there, last, sums);
    i += block();
  };
  constexpr std::integral_constant<int, B> block;
  constexpr std::integral_constant<int, 1> single;
  if constexpr (has_edges) {
    constexpr std::true_type at_edge;
    while (i < std::min(inside.first, n)) {
      // For a single output at the edge, the blocks behind it would begin later.
      if (inside.first - i > 1 && i + B <= n) {
        add(block, at_edge);
      } else {
        add(single, at_edge);
      }
    }
    while (i + B <= n && i + B + K - 1 <= inside.last) {
      add(block, std::false_type());
    }
    while (i < n) {
      if (i + B <= n) {
        add(block, at_edge);
      } else {
        add(single, at_edge);
      }
    }
  } else {
    while (i + B <= n) {
      add(block, std::false_type());
    }
    while (i < n) {
      add(single, std::false_type());
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      Vec(sums[k][v]).store(sums_elements + k * sums_step + v * size);
    }
  }
}

// Adds to sums, K x V vectors, what the outputs' gradients g times the elements x give for each tap of a run.
//
// Args:
//   g, g_step, x, x_step: where they begin and the steps from one output to the next.
//   n: how many outputs.
//   inside: where rows have edges, which elements there are; the others are not read.
//   lanes: how many elements there are in all vectors. The others are taken as zero in x; in g the caller has zeros
//     there, unless there are masks.
//   sums, sums_step: the sums of the first tap, and from one tap's to the next.
template <typename acc_t, int K, int V, bool has_edges>
void correlate(
    const acc_t* g,
    int64_t g_step,
    const acc_t* x,
    int64_t x_step,
    int64_t n,
    Inside inside,
    int64_t lanes,
    acc_t* sums,
    int64_t sums_step) {
  constexpr int at_once = std::min(V, kVectorsAtOnce);
  constexpr int64_t size = vec::Vectorized<acc_t>::size(), step = at_once * size;
  for (int64_t l = 0; l < V * size; l += step) {
    correlate_part<acc_t, K, at_once, has_edges>(
        g + l, g_step, x + l, x_step, n, inside, std::min(lanes - l, step), sums + l, sums_step);
  }
}

} // namespace CPU_CAPABILITY
} // namespace at::native
