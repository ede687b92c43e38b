#pragma once

#include <ATen/cpu/vec/vec.h>

#include <cstdint>
#include <cstring>

// Writing past the caches: a line that is stored is else read first, and takes the place of what is read again. For
// results that are more than is worth keeping.

namespace at::native {
inline namespace CPU_CAPABILITY {

// Vectors as wide as a cache line can be.
#ifdef CPU_CAPABILITY_AVX512
constexpr bool kHasStream = true;
#else
constexpr bool kHasStream = false;
#endif

// `to` begins a cache line, which the vector fills.
template <typename T>
C10_ALWAYS_INLINE void stream(T* to, const vec::Vectorized<T>& elements) {
#ifdef CPU_CAPABILITY_AVX512
  static_assert(sizeof(elements) == 64);
  __m512i bits;
  std::memcpy(&bits, &elements, sizeof(bits));
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits);
#else
  elements.store(to);
#endif
}

// Before others may read what was streamed.
inline void end_stream() {
#ifdef CPU_CAPABILITY_AVX512
  _mm_sfence();
#endif
}

// Whether to stream a result: where each of its rows has lines of its own.
//
// Args:
//   data: where it begins.
//   row: the bytes of one row.
//   bytes, least: how many are gone through at a time and from how many on it gains. The caller says which it counts;
//     the limit was found by measuring, for the bytes of results alone.
inline bool can_stream(const void* data, int64_t row, int64_t bytes, int64_t least = 1 << 22) {
  constexpr int64_t line = 64;
  return kHasStream && bytes >= least && reinterpret_cast<uintptr_t>(data) % line == 0 && row % line == 0;
}

} // namespace CPU_CAPABILITY
} // namespace at::native
