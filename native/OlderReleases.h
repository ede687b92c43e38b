#pragma once

// What the kernels use and PyTorch 2.6 has not got.

#include <c10/core/SymBool.h>

#include <cstdint>
#include <limits>

#ifndef TORCH_GUARD_OR_FALSE
#define TORCH_GUARD_OR_FALSE(condition) TORCH_GUARD_SIZE_OBLIVIOUS(condition)
#endif

namespace at::native {

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
