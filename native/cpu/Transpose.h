#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/LoadWithZeros.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

// Matrices of float, double or int32_t that are turned round: [rows][columns] to [columns][rows]. from_step and to_step
// are from one row of each to the next; rows and columns are of what is read.

namespace at::native {
inline namespace CPU_CAPABILITY {

// A block of at most Vec::size() rows and columns. A perfect shuffle of two halves of the rows moves the first bit of
// an element's row number behind those of its column; after as many shuffles as the number has bits, both are
// exchanged.
template <typename acc_t, bool is_whole>
C10_ALWAYS_INLINE void
transpose_block(const acc_t* from, int64_t from_step, acc_t* to, int64_t to_step, int64_t rows, int64_t columns) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int size = Vec::size();
  std::array<Vec, size> lines, shuffled;
#pragma GCC unroll 16
  for (int i = 0; i < size; ++i) {
    lines[i] = is_whole ? Vec::loadu(from + i * from_step)
        : i < rows      ? load_with_zeros(from + i * from_step, columns)
                        : Vec(acc_t(0));
  }
#pragma GCC unroll 4
  for (int bit = 1; bit < size; bit *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < size / 2; ++i) {
      std::tie(shuffled[2 * i], shuffled[2 * i + 1]) = vec::interleave2(lines[i], lines[i + size / 2]);
    }
    std::swap(lines, shuffled);
  }
#pragma GCC unroll 16
  for (int j = 0; j < size; ++j) {
    if (is_whole) {
      lines[j].store(to + j * to_step);
    } else if (j < columns) {
      lines[j].store(to + j * to_step, static_cast<int>(rows));
    }
  }
}

template <typename acc_t>
void transpose_blocks(const acc_t* from, int64_t from_step, acc_t* to, int64_t to_step, int64_t rows, int64_t columns) {
  constexpr int64_t size = vec::Vectorized<acc_t>::size();
  for (int64_t i = 0; i < rows; i += size) {
    for (int64_t j = 0; j < columns; j += size) {
      const auto m = std::min(size, rows - i), n = std::min(size, columns - j);
      const auto* source = from + i * from_step + j;
      auto* target = to + j * to_step + i;
      if (m == size && n == size) {
        transpose_block<acc_t, true>(source, from_step, target, to_step, m, n);
      } else {
        transpose_block<acc_t, false>(source, from_step, target, to_step, m, n);
      }
    }
  }
}

// Of floats four columns of as many rows as a vector holds: its parts of 128 bits are read from rows that are four
// apart, so that elements change places only within the parts, which takes half the shuffles of a block.

#if defined(CPU_CAPABILITY_AVX512)
inline __m512 load_parts(const float* from, int64_t step) {
  auto parts = _mm512_castps128_ps512(_mm_loadu_ps(from));
  parts = _mm512_insertf32x4(parts, _mm_loadu_ps(from + 4 * step), 1);
  parts = _mm512_insertf32x4(parts, _mm_loadu_ps(from + 8 * step), 2);
  return _mm512_insertf32x4(parts, _mm_loadu_ps(from + 12 * step), 3);
}
inline __m512d low_elements(__m512 a, __m512 b) {
  return _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
}
inline __m512d high_elements(__m512 a, __m512 b) {
  return _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
}
inline void store_low_pairs(float* to, __m512d a, __m512d b) {
  _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)));
}
inline void store_high_pairs(float* to, __m512d a, __m512d b) {
  _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}
#elif defined(CPU_CAPABILITY_AVX2)
inline __m256 load_parts(const float* from, int64_t step) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * step), 1);
}
inline __m256d low_elements(__m256 a, __m256 b) {
  return _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
}
inline __m256d high_elements(__m256 a, __m256 b) {
  return _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
}
inline void store_low_pairs(float* to, __m256d a, __m256d b) {
  _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(a, b)));
}
inline void store_high_pairs(float* to, __m256d a, __m256d b) {
  _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
}
#endif

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
C10_ALWAYS_INLINE void transpose_columns(const float* from, int64_t from_step, float* to, int64_t to_step) {
  const auto a = load_parts(from, from_step), b = load_parts(from + from_step, from_step);
  const auto c = load_parts(from + 2 * from_step, from_step), d = load_parts(from + 3 * from_step, from_step);
  const auto low_ab = low_elements(a, b), high_ab = high_elements(a, b);
  const auto low_cd = low_elements(c, d), high_cd = high_elements(c, d);
  store_low_pairs(to, low_ab, low_cd);
  store_high_pairs(to + to_step, low_ab, low_cd);
  store_low_pairs(to + 2 * to_step, high_ab, high_cd);
  store_high_pairs(to + 3 * to_step, high_ab, high_cd);
}

inline void
transpose_floats(const float* from, int64_t from_step, float* to, int64_t to_step, int64_t rows, int64_t columns) {
  constexpr int64_t size = vec::Vectorized<float>::size(), four = 4;
  if (rows < size || columns < four) {
    return transpose_blocks(from, from_step, to, to_step, rows, columns);
  }
  // Where they do not come out even, some at the end are done again.
  for (int64_t i = 0; i < rows; i += size) {
    const auto top = std::min(i, rows - size);
    for (int64_t j = 0; j < columns; j += four) {
      const auto left = std::min(j, columns - four);
      transpose_columns(from + top * from_step + left, from_step, to + left * to_step + top, to_step);
    }
  }
}

template <typename T>
void transpose(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
  if constexpr (std::is_same_v<T, float>) {
    transpose_floats(from, from_step, to, to_step, rows, columns);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    // To a shuffle they are bits.
    const auto* bits = reinterpret_cast<const float*>(from);
    transpose_floats(bits, from_step, reinterpret_cast<float*>(to), to_step, rows, columns);
  } else {
    transpose_blocks(from, from_step, to, to_step, rows, columns);
  }
}
#else
template <typename T>
void transpose(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      to[j * to_step + i] = from[i * from_step + j];
    }
  }
}
#endif

} // namespace CPU_CAPABILITY
} // namespace at::native
