#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <array>
#include <cstdint>
#include <type_traits>

namespace at::native {
inline namespace CPU_CAPABILITY {

#ifdef CPU_CAPABILITY_AVX512

// As vec::convert_from_float, but for the bits of a NaN, in about half as many instructions or fewer: rounds to
// nearest, ties to even.
C10_ALWAYS_INLINE vec::Vectorized<BFloat16> round_to_bfloat16(__m512 low, __m512 high) {
  // AVX512-BF16, which PyTorch's kernels are not compiled for, has one instruction for it.
  if (__builtin_cpu_supports("avx512bf16")) {
    __m512i result;
    // Volatile, so that it stays behind the question.
    asm volatile("vcvtne2ps2bf16 %1, %2, %0" : "=v"(result) : "v"(low), "v"(high));
    // It takes subnormal numbers for zero.
    constexpr int subnormal = 0x20;
    if (C10_LIKELY((_mm512_fpclass_ps_mask(low, subnormal) | _mm512_fpclass_ps_mask(high, subnormal)) == 0)) {
      return result;
    }
  }
  if (C10_UNLIKELY(_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) != 0)) {
    return vec::convert_from_float<BFloat16>(low, high);
  }
  const auto half = _mm512_set1_epi32(0x7fff), is_odd = _mm512_set1_epi32(0x10000), one = _mm512_set1_epi32(1);
  const auto round = [&](__m512 value) {
    const auto bits = _mm512_castps_si512(value);
    const auto sum = _mm512_add_epi32(bits, half);
    return _mm512_mask_add_epi32(sum, _mm512_test_epi32_mask(bits, is_odd), sum, one);
  };
  alignas(64) static constexpr auto upper_halves = [] {
    std::array<int16_t, 32> places{};
    for (int16_t i = 0; i < 32; ++i) {
      places[i] = static_cast<int16_t>(2 * i + 1);
    }
    return places;
  }();
  return _mm512_permutex2var_epi16(round(low), _mm512_load_si512(upper_halves.data()), round(high));
}

#endif

// One vector of a half type from two of float.
template <typename scalar_t>
C10_ALWAYS_INLINE vec::Vectorized<scalar_t>
rounded(const vec::Vectorized<float>& low, const vec::Vectorized<float>& high) {
#ifdef CPU_CAPABILITY_AVX512
  if constexpr (std::is_same_v<scalar_t, BFloat16>) {
    return round_to_bfloat16(low, high);
  }
#endif
  return vec::convert_from_float<scalar_t>(low, high);
}

} // namespace CPU_CAPABILITY
} // namespace at::native
