#pragma once

// What the kernels use and older releases of PyTorch, back to 2.6, have not got.

#include <c10/core/SymBool.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>
#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#endif

#include <cstdint>
#include <limits>
#include <type_traits>

#ifndef TORCH_GUARD_OR_FALSE
#define TORCH_GUARD_OR_FALSE(condition) TORCH_GUARD_SIZE_OBLIVIOUS(condition)
#endif

// For AT_DISPATCH_V2: complex numbers of two halves. Those of bfloat16 are new in PyTorch 2.15.
#if defined(TORCH_VERSION_MINOR) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
#define AT_HALF_COMPLEX_TYPES kComplexHalf, kBComplex32
#else
#define AT_HALF_COMPLEX_TYPES kComplexHalf
#endif

namespace at::native {

template <typename T>
constexpr bool is_half_complex_v =
    std::is_same_v<T, c10::complex<c10::Half>> || std::is_same_v<T, c10::complex<c10::BFloat16>>;

// c10::add_overflows takes unsigned numbers only.
inline bool add_overflows(int64_t a, int64_t b, int64_t* out) {
  using limits = std::numeric_limits<int64_t>;
  if (b > 0 ? a > limits::max() - b : a < limits::min() - b) {
    return true;
  }
  *out = a + b;
  return false;
}

} // namespace at::native
