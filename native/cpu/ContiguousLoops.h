#pragma once

#include <ATen/Parallel.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>
#include <ATen/native/cpu/Stream.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace at::native {
inline namespace CPU_CAPABILITY {

#ifdef CPU_CAPABILITY_AVX512

// A vector, which is a cache line, by two reads: from the second-level cache on that is a tenth faster than by one.
// Half types are parted anyway.
template <typename T>
C10_ALWAYS_INLINE vec::Vectorized<T> load_line(const T* from) {
  if constexpr (vec::is_reduced_floating_point_v<T>) {
    return vec::Vectorized<T>::loadu(from);
  } else {
    const auto* halves = reinterpret_cast<const __m256i*>(from);
    const auto low = _mm256_loadu_si256(halves), high = _mm256_loadu_si256(halves + 1);
    const auto bits = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    vec::Vectorized<T> elements;
    static_assert(sizeof(elements) == sizeof(bits));
    std::memcpy(static_cast<void*>(&elements), &bits, sizeof(bits));
    return elements;
  }
}

// The elements from `begin` to `end`. All is taken by value: what a store might change would be read for each vector.
template <bool is_streamed, typename scalar_t, typename one_t, typename vectors_t, size_t... I>
void contiguous_loop(
    scalar_t* out,
    std::array<const scalar_t*, sizeof...(I)> in,
    int64_t begin,
    int64_t end,
    one_t one,
    vectors_t vectors,
    std::index_sequence<I...> /*operands*/) {
  constexpr int64_t size = vec::Vectorized<scalar_t>::size();
  auto i = begin;
  for (; i + size <= end; i += size) {
    const auto result = vectors(load_line(in[I] + i)...);
    if constexpr (is_streamed) {
      stream(out + i, result);
    } else {
      result.store(out + i);
    }
  }
  for (; i < end; ++i) {
    out[i] = one(in[I][i]...);
  }
}

// Where all operands are contiguous and of the type that is computed in.
template <typename one_t, typename vectors_t>
void contiguous_kernel(TensorIteratorBase& iter, const one_t& one, const vectors_t& vectors) {
  using traits = function_traits<one_t>;
  using scalar_t = typename traits::result_type;
  constexpr size_t arity = traits::arity;
  auto* out = static_cast<scalar_t*>(iter.data_ptr(0));
  std::array<const scalar_t*, arity> in;
  for (size_t i = 0; i < arity; ++i) {
    in[i] = static_cast<const scalar_t*>(iter.data_ptr(static_cast<int64_t>(i) + 1));
  }
  constexpr int64_t size = vec::Vectorized<scalar_t>::size(), bytes = sizeof(scalar_t);
  // Of all operands together: as large as the third-level cache of the processor that this was measured on.
  constexpr int64_t least = 1 << 25;
  const auto numel = iter.numel();
  // In place the lines are read in any case.
  const bool is_in_place = std::find(in.begin(), in.end(), out) != in.end();
  const bool is_streamed =
      !is_in_place && can_stream(out, size * bytes, numel * bytes * static_cast<int64_t>(arity + 1), least);
  at::parallel_for(0, (numel + size - 1) / size, at::internal::GRAIN_SIZE / size, [&](int64_t begin, int64_t end) {
    const auto loop = [&](auto streamed) {
      constexpr std::make_index_sequence<arity> operands;
      contiguous_loop<streamed()>(out, in, begin * size, std::min(end * size, numel), one, vectors, operands);
    };
    if (is_streamed) {
      loop(std::true_type());
      end_stream();
    } else {
      loop(std::false_type());
    }
  });
  iter.cast_outputs();
}

#endif

// cpu_kernel_vec of ATen/native/cpu/Loops.h, but faster with AVX512 where all operands are contiguous: vectors are read
// by halves, and a result is written past the caches where all the operands together are too many for them.
template <typename one_t, typename vectors_t>
void contiguous_kernel_vec(TensorIteratorBase& iter, const one_t& one, const vectors_t& vectors) {
#ifdef CPU_CAPABILITY_AVX512
  TORCH_INTERNAL_ASSERT(iter.ninputs() == function_traits<one_t>::arity && iter.noutputs() == 1);
  if (iter.is_contiguous() && !needs_dynamic_casting<one_t>::check(iter)) {
    return contiguous_kernel(iter, one, vectors);
  }
#endif
  cpu_kernel_vec(iter, one, vectors);
}

} // namespace CPU_CAPABILITY
} // namespace at::native
